"""Everything that is measured on one broker: a timed leg, one with a kill, and the legs with Temporal."""

import asyncio
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtests.pipeline import temporal
from loadtests.pipeline.legs import BATCH, Leg, Legs
from loadtests.pipeline.stack import Stack, service_command
from loadtests.pipeline.world import World
from services.kernel.blobs import Blobs

SERVICES = ("gateway", "scheduler", "reward", "rollout")
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """Batches of 128 episodes of each leg; no Temporal where that is 0."""

    batches: int
    killed_batches: int
    temporal_batches: int


async def measured(folder: Path, kind: str, sizes: Sizes, killed: str) -> dict[str, Any]:
    """The figures of one broker; services are fresh, and killed at the end."""
    stack = Stack(folder, kind)
    try:
        await stack.start()
        blobs = Blobs.open(stack.blob_url)
        legs = Legs(stack, World(folder, stack.kafka_url, blobs), blobs)
        async with legs.world.trainer_running():
            async with legs.world.rollout_running():
                await stack.ready()
                done = [await legs.run("warm", WARM_UP)]
                done.append(await _told(legs.run("timed", sizes.batches)))
                done.append(await _told(legs.run("killed", sizes.killed_batches, killed=killed)))
            bare = await _with_temporal(stack, legs, sizes.temporal_batches, done) if sizes.temporal_batches else None
        peak = sum(stack.programs[name].peak_bytes() for name in SERVICES if name in stack.programs)
    finally:
        stack.stop()
    by_run = {leg.run_id: leg for leg in done}
    with_temporal = by_run.get("temporal")
    return {
        "broker": kind,
        "episodes_per_s": by_run["timed"].per_s,
        "episodes_per_s_killed": by_run["killed"].per_s,
        "episodes_per_s_temporal": with_temporal.per_s if with_temporal else None,
        "bare_temporal_per_s": bare,
        "lost": sum(leg.lost for leg in done),
        "duplicated": sum(leg.duplicated for leg in done),
        "peak_rss_mb": round(peak / 1e6),
        "cpu_ms_per_episode": by_run["timed"].cpu_ms_per_episode,
        "episodes_per_cpu_s": round(1000 / by_run["timed"].cpu_ms_per_episode, 1),
        "load_average": by_run["timed"].load_average,
        "legs": [asdict(leg) for leg in done],
    }


async def _with_temporal(stack: Stack, legs: Legs, batches: int, done: list[Leg]) -> float:
    """Bare Temporal first, then the run with the real rollout service in the script's place."""
    await stack.start_temporal()
    bare = await temporal.bare_per_s(stack, batches * BATCH)
    print(f"bare Temporal: {bare:.1f} workflows/s", file=sys.stderr, flush=True)
    await stack.add("rollout", service_command("rollout")).ready()
    done.append(await legs.run("temporal-warm", WARM_UP))
    done.append(await _told(legs.run("temporal", batches)))
    return bare


async def _told(leg: "asyncio.Future[Leg] | Any") -> Leg:
    shown: Leg = await leg
    print(asdict(shown), file=sys.stderr, flush=True)
    return shown
