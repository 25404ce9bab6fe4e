"""Everything that is measured on one broker: a timed leg, one with a kill, and the legs with Temporal."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtests.pipeline.legs import Leg, Legs
from loadtests.pipeline.stack import Stack
from loadtests.pipeline.temporal import Bare, bare_figures, with_temporal
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
                if sizes.batches:
                    done.append(await _told(legs.run("timed", sizes.batches)))
                if sizes.killed_batches:
                    done.append(await _told(legs.run("killed", sizes.killed_batches, killed=killed)))
            bare: Mapping[str, Bare] = {}
            if sizes.temporal_batches:
                more, bare = await with_temporal(stack, legs, sizes.temporal_batches)
                done += more
        peak = sum(stack.programs[name].peak_bytes() for name in SERVICES if name in stack.programs)
    finally:
        stack.stop()
    by_run = {leg.run_id: leg for leg in done}
    timed = by_run.get("timed") or by_run.get("temporal") or done[0]
    return {
        "broker": kind,
        "episodes_per_s": per_s(by_run, "timed"),
        "episodes_per_s_killed": per_s(by_run, "killed"),
        "episodes_per_s_temporal": per_s(by_run, "temporal"),
        **bare_figures(bare),
        "lost": sum(leg.lost for leg in done),
        "duplicated": sum(leg.duplicated for leg in done),
        "peak_rss_mb": round(peak / 1e6),
        "cpu_ms_per_episode": timed.cpu_ms_per_episode,
        "episodes_per_cpu_s": round(1000 / timed.cpu_ms_per_episode, 1),
        "load_average": timed.load_average,
        "legs": [asdict(leg) for leg in done],
        "bare": {form: asdict(one) for form, one in bare.items()},
    }


def per_s(by_run: Mapping[str, Leg], run_id: str) -> float | None:
    """A leg's rate, where it ran."""
    return by_run[run_id].per_s if run_id in by_run else None


async def _told(leg: "asyncio.Future[Leg] | Any") -> Leg:
    shown: Leg = await leg
    print(asdict(shown), file=sys.stderr, flush=True)
    return shown
