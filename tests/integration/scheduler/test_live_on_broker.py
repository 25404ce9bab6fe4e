"""The scheduler's bootstrap on a real broker, driven with recorded durations, decides exactly as the simulator does."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from brokers import RealBroker
from forgerl.common.v1 import run_pb2

from loadtests.scheduler.durations import draw
from loadtests.scheduler.live import difference, recording, simulated
from loadtests.scheduler.live_broker import LiveOnBroker
from loadtests.scheduler.traces import fitted
from loadtests.scheduler.world import Recording

pytestmark = pytest.mark.broker


def recorded(**scheduling: object) -> Recording:
    """Thirty groups of two with a heavy tail, one in seven without spread, and a deadline that cuts the longest."""
    items = draw("lognormal", 60, 7, fitted())
    numbers: dict[str, object] = {"group_size": 2, "items_per_batch": 2, "queue_items": 12, "in_flight_items": 6}
    spec = run_pb2.SchedulingSpec(**{**numbers, "deadline_s": 4 * items.mean_s, **scheduling})
    return recording(items.durations_us, round(items.mean_s * 0.1e6), spec)


@pytest.mark.parametrize(
    "scheduling",
    [{"lookahead_steps": 6}, {"mode": run_pb2.SCHEDULING_MODE_COHORT, "window": "auto"}],
    ids=["rolling", "auto cohort"],
)
async def test_live_on_a_broker_equals_simulated(
    own_broker: RealBroker, tmp_path: Path, scheduling: dict[str, object]
) -> None:
    run = recorded(**scheduling)
    live = await LiveOnBroker(tmp_path / "live", run, own_broker.url).steps()
    assert difference(live, simulated(run)) == ""
    seen = Counter(type(decision).__name__ for _, _, decisions in live for decision in decisions)
    assert seen["AdmitItem"] == 30
    assert seen["CloseBatch"] >= 10
    assert min(seen["Revoke"], seen["DropItem"]) > 0
    shorter = [*run.durations_us[:5], run.durations_us[5] - 1, *run.durations_us[6:]]
    assert difference(live, simulated(replace(run, durations_us=shorter))), "a microsecond is seen"
