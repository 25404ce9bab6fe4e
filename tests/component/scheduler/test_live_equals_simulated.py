"""The service on a real store, driven with recorded durations, makes exactly the simulator's decisions."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from forgerl.common.v1 import run_pb2

from loadtests.scheduler.durations import draw
from loadtests.scheduler.live import Live, Step, difference, recording, simulated
from loadtests.scheduler.traces import fitted
from loadtests.scheduler.world import Recording

COHORT, ROLLING = run_pb2.SCHEDULING_MODE_COHORT, run_pb2.SCHEDULING_MODE_ROLLING
CASES = {
    "windowed": {"mode": ROLLING},
    "strict": {"mode": ROLLING, "policy": run_pb2.SELECTION_POLICY_STRICT_FIFO},
    "greedy cohort": {"mode": COHORT, "policy": run_pb2.SELECTION_POLICY_GREEDY},
    "version window": {"mode": ROLLING, "policy": run_pb2.SELECTION_POLICY_VERSION_WINDOW},
    "auto cohort": {"mode": COHORT, "window": "auto"},
}


def recorded(seed: int, **scheduling: object) -> Recording:
    """Eighty groups of two with a heavy tail, one in seven without spread, and a deadline that cuts the longest."""
    items = draw("lognormal", 160, seed, fitted())
    numbers: dict[str, object] = {
        "group_size": 2,
        "items_per_batch": 2,
        "queue_items": 16,
        "in_flight_items": 8,
        "deadline_s": 5 * items.mean_s,
    }
    spec = run_pb2.SchedulingSpec(**{**numbers, **scheduling})
    return recording(items.durations_us, round(items.mean_s * 0.1e6), spec)


def kinds(steps: list[Step]) -> Counter[str]:
    return Counter(type(decision).__name__ for _, _, decisions in steps for decision in decisions)


@pytest.mark.parametrize("case", CASES)
async def test_live_equals_simulated(case: str, tmp_path: Path) -> None:
    run = recorded(len(case), **CASES[case])
    live, imagined = await Live(tmp_path, run).steps(), simulated(run)
    assert difference(live, imagined) == ""
    seen = kinds(live)
    assert seen["AdmitItem"] == 80
    assert seen["TakeItem"] + seen["DropItem"] >= 79  # the last batch may lack one
    assert seen["CloseBatch"] > 25
    assert min(seen["Revoke"], seen["DropItem"]) > 0
    assert (seen["SetWindow"] > 0) == (case == "auto cohort")


async def test_a_microsecond_is_seen(tmp_path: Path) -> None:
    """One episode that took a microsecond longer than the simulator was told makes them part."""
    run = recorded(3)
    longer = list(run.durations_us)
    longer[5] += 1
    found = difference(await Live(tmp_path, replace(run, durations_us=longer)).steps(), simulated(run))
    assert found.startswith("step ")


def test_a_difference_is_told() -> None:
    assert difference([(1.0, "Ticked", ())], [(1.0, "Ticked", ())]) == ""
    assert "step 0" in difference([(1.0, "Ticked", ())], [(math.nextafter(1.0, 2.0), "Ticked", ())])
    assert difference([], [(1.0, "Ticked", ())]) == "live took 0 inputs, the simulator 1"
