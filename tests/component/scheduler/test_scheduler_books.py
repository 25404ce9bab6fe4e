"""The books as the service keeps them: what is in flight by stage, the alert when they don't add up, shared fleets."""

from pathlib import Path

import pytest
import structlog
from forgerl.events.v1 import gateway_pb2, trainer_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from scheduler_bench import Bench, group, run_spec, submitted

from services.scheduler.adapters.reports import BlobReports
from services.scheduler.bootstrap import build_scheduler
from services.scheduler.entrypoints.consumer import Consumer
from services.scheduler.entrypoints.rpc import SchedulerRpc


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def ledger(bench: Bench, run_id: str = "r") -> pb.RunLedger:
    return await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id=run_id), None)


async def test_everybody_in_flight_is_in_one_stage(bench: Bench) -> None:
    await bench.open(in_flight_items=2, items_per_batch=2, lookahead_steps=3)
    for name in ("g0", "g1", "g2", "g3", "g4"):
        await bench.feed(*group(name))
    await bench.feed(submitted("half.0", "half"))
    for name in ("g0", "g1", "g2"):
        for number, performance in enumerate((1.0, 0.0)):
            await bench.finish(f"{name}.{number}", performance)
    found = await ledger(bench)
    assert (found.submitted, found.in_flight, found.balanced) == (11, 11, True)
    assert dict(found.in_flight_by_stage) == {"queued": 1, "running": 4, "finished": 0, "batch": 2, "training": 4}
    await bench.train(1)
    found = await ledger(bench)
    assert (found.trained, found.in_flight, found.in_flight_by_stage["training"]) == (4, 7, 0)
    await bench.feed(submitted("v", pinned_step=1), submitted("w", pinned_step=0))
    found = await ledger(bench)
    assert (found.evaluations, found.evaluations_in_flight) == (2, 1)
    assert dict(found.evaluations_ended) == {"policy_replaced": 1}
    await bench.finish("v")
    assert dict((await ledger(bench)).evaluations_ended) == {"policy_replaced": 1, "evaluated": 1}


async def test_books_that_do_not_add_up_are_one_line_in_the_log_and_a_no_in_the_ledger(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g0"))
    state = await bench.scheduler.state("r")
    state.tally.submitted += 1  # a defect, as if somebody had forgotten to count
    with structlog.testing.capture_logs() as lines:
        await bench.feed(*group("g1"))
        await bench.feed(*group("g2"))
    alarms = [line for line in lines if line["event"] == "ledger.unbalanced"]
    assert [(line["run_id"], line["episodes"], line["log_level"]) for line in alarms] == [("r", 1, "error")]
    assert not (await ledger(bench)).balanced


class Fleet(Bench):
    """A bench whose scheduler shares eight episodes among its runs."""

    def process(self):
        scheduler = build_scheduler(self.store, self.blobs, self.catalogue, self.clock, 8)
        return scheduler, Consumer(scheduler, BlobReports(self.blobs), self.clock)


async def open_run(bench: Bench, run_id: str, weight: float, **scheduling: object) -> None:
    spec = run_spec(fleet_weight=weight, **scheduling)
    await bench.feed(
        gateway_pb2.RunCreated(run_id=run_id, spec=spec), trainer_pb2.PolicyPublished(run_id=run_id, step=0)
    )


async def shares(bench: Bench, *runs: str) -> list[int]:
    return [(await bench.scheduler.state(run_id)).fleet_episodes for run_id in runs]


async def test_runs_share_the_fleet_by_weight_and_each_share_is_recorded(tmp_path: Path) -> None:
    bench = Fleet(tmp_path)
    await open_run(bench, "r", 1.0)
    assert await shares(bench, "r") == [0], "alone it may have all that it wants: C * G = 8"
    await open_run(bench, "s", 3.0)
    assert await shares(bench, "r", "s") == [2, 6]
    assert await bench.store.version("scheduler.queue/r") == 3, "its share is an input of its own queue"
    # Another process, with nothing but the store, knows the shares and has nothing to add.
    bench.scheduler, bench.consumer = bench.process()
    await bench.scheduler.load()
    assert await shares(bench, "r", "s") == [2, 6]
    assert await bench.store.version("scheduler.queue/r") == 3
    await bench.feed(gateway_pb2.RunEnded(run_id="s", reason="stopped"))
    assert await shares(bench, "r", "s") == [0, 6]
    assert (await ledger(bench)).fleet_episodes == 0


async def test_a_share_bounds_who_is_admitted(tmp_path: Path) -> None:
    bench = Fleet(tmp_path)
    await open_run(bench, "r", 1.0)
    await open_run(bench, "s", 3.0)
    for name in ("g0", "g1", "g2"):
        await bench.feed(*group(name))
    assert len(await bench.store.streams("scheduler.admission/")) == 2
    capacity = await SchedulerRpc(bench.scheduler).GetCapacity(pb.GetCapacityRequest(run_id="r"), None)
    assert (capacity.in_flight_items, capacity.fleet_episodes) == (1, 2)


async def test_two_runs_that_both_have_work_are_admitted_by_weight(tmp_path: Path) -> None:
    """Eight episodes, weights 1 and 3: one group of r and three of s run at a time, each replaced by its run's next."""
    bench = Fleet(tmp_path)
    await open_run(bench, "r", 1.0, lookahead_steps=8)
    await open_run(bench, "s", 3.0, lookahead_steps=8)
    for number in range(8):
        for run_id in ("r", "s"):
            members = group(f"{run_id}{number}")
            for member in members:
                member.run_id = run_id
            await bench.feed(*members)
    for number in range(3):
        admitted = [name.partition("/")[2] for name in await bench.store.streams("scheduler.admission/")]
        assert [sum(name.startswith(run_id) for name in admitted) for run_id in "rs"] == [
            2 + 2 * number,
            6 + 2 * number,
        ]
        for run_id in ("r", "s"):
            for member, performance in ((0, 1.0), (1, 0.0)):
                ended = await bench.ending(f"{run_id}{number}.{member}", performance)
                for message in ended:
                    message.run_id = run_id
                await bench.feed(*ended)


async def test_a_commit_that_failed_is_told_again(tmp_path: Path) -> None:
    """The other run's share was decided and never written: the next event finds it missing."""
    bench = Fleet(tmp_path)
    await open_run(bench, "r", 1.0)
    created = bench.event(gateway_pb2.RunCreated(run_id="s", spec=run_spec(fleet_weight=3.0)))
    writes = await bench.consumer.handle([created])  # the answer never reaches the store
    assert sorted(write.stream for write in writes) == ["scheduler.queue/r", "scheduler.queue/s"]
    await bench.deliver([created])
    await bench.feed(*group("g0"))
    assert await shares(bench, "r", "s") == [2, 6]
    assert await bench.store.version("scheduler.queue/s") == 2


async def test_a_fleet_that_is_no_longer_bounded_frees_its_runs(tmp_path: Path) -> None:
    bench = Fleet(tmp_path)
    await open_run(bench, "r", 1.0)
    await open_run(bench, "s", 3.0)
    scheduler, _ = Bench.process(bench)
    await scheduler.load()
    assert [(await scheduler.state(run_id)).fleet_episodes for run_id in "rs"] == [0, 0]
