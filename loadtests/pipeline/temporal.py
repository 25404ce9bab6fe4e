"""The legs with Temporal: an episode is a workflow of the real rollout service; and what Temporal bears by itself.

Every form of bare Temporal runs before the pipeline and after it, so that a machine that slows down slows both.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtests.pipeline.legs import BATCH, Leg, Legs
from loadtests.pipeline.stack import Stack, service_command

FORMS = ("plain", "lean", "step")
WARM_UP = 1
BARE_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Bare:
    """One form of bare Temporal, over all its turns. CPU: milliseconds a workflow, of its worker and of the server."""

    form: str
    workflows: int
    per_s: float
    turns_per_s: Sequence[float]
    worker_cpu_ms: float
    server_cpu_ms: float


@dataclass(frozen=True, slots=True)
class _Turn:
    form: str
    count: int
    seconds: float
    worker_cpu_ms: float
    server_cpu_ms: float


async def with_temporal(stack: Stack, legs: Legs, batches: int) -> tuple[Sequence[Leg], Mapping[str, Bare]]:
    """The rollout service in the script's place, between two turns of bare Temporal; `stack` is up, rollout isn't."""
    await stack.start_temporal()
    await stack.add("rollout", service_command("rollout")).ready()
    done = [await legs.run("temporal-warm", WARM_UP)]
    count = min(batches, BARE_BATCHES) * BATCH
    turns = [await _bare(stack, form, count) for form in FORMS]
    done.append(await legs.run("temporal", batches))
    turns += [await _bare(stack, form, count) for form in reversed(FORMS)]
    return done, {form: _summed([turn for turn in turns if turn.form == form]) for form in FORMS}


def bare_figures(bare: Mapping[str, Bare]) -> dict[str, float | None]:
    """The figures by their names in the result; `bare_temporal_per_s` is the form that nobody has tuned."""
    tuned = {f"bare_temporal_{form}_per_s": one.per_s for form, one in bare.items() if form != "plain"}
    return {"bare_temporal_per_s": bare["plain"].per_s if bare else None, **tuned}


async def _bare(stack: Stack, form: str, count: int) -> _Turn:
    """In a process of its own."""
    address = f"127.0.0.1:{stack.temporal_port}"
    before = stack.programs["temporal"].cpu_s()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.pipeline.bare", address, str(count), form),
        env=stack.environment(),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"bare Temporal ended with {process.returncode}")
    server_s = stack.programs["temporal"].cpu_s() - before
    told = json.loads(out)
    turn = _Turn(form, count, told["seconds"], told["cpu_ms"], 1000 * server_s / (count + told["warm_up"]))
    print(turn, file=sys.stderr, flush=True)
    return turn


def _summed(turns: Sequence[_Turn]) -> Bare:
    count = sum(turn.count for turn in turns)
    return Bare(
        turns[0].form,
        count,
        round(count / sum(turn.seconds for turn in turns), 1),
        [round(turn.count / turn.seconds, 1) for turn in turns],
        round(sum(turn.worker_cpu_ms for turn in turns) / len(turns), 2),
        round(sum(turn.server_cpu_ms for turn in turns) / len(turns), 2),
    )
