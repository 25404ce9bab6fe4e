"""A removed run: nobody of it is kept in memory, and everything that was known of them is still told."""

from pathlib import Path

import pytest
from forgerl.events.v1 import gateway_pb2, rollout_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.trainer.v1 import report_pb2
from scheduler_bench import Bench, group, submitted

from services.kernel.errors import NotFound
from services.scheduler.application import Scheduler
from services.scheduler.domain.queue import disagreement
from services.scheduler.entrypoints.rpc import SchedulerRpc

EVERYBODY = ("g.0", "g.1", "late", "off", "h.0", "h.1", "half", "v", "w")
UNTOLD = {"off", "half"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def live(bench: Bench) -> None:
    """One run with everything in it: trained, late, called off, running, half a group, evaluation run and waiting."""
    await bench.open(in_flight_items=2)
    await bench.feed(*group("g"), submitted("late", "g"))
    await bench.finish("g.0", 1.0)
    await bench.finish("g.1", 0.0)
    report = report_pb2.EpisodeReport(episode_id="g.0", trained=True, mean_advantage=0.5, trained_tokens=9)
    await bench.train(1, report)
    await bench.feed(submitted("off", "o"), submitted("half", "x"), submitted("v", pinned_step=1))
    await bench.feed(gateway_pb2.EpisodeCancelled(episode_id="off", run_id="r", reason="user"))
    await bench.finish("v")
    await bench.feed(*group("h"), submitted("w", pinned_step=2))


async def told(bench: Bench) -> dict[str, pb.EpisodeLedger]:
    rpc = SchedulerRpc(bench.scheduler)
    return {name: await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id=name), None) for name in EVERYBODY}


def remembered(scheduler: Scheduler) -> tuple[set[str], set[str]]:
    """Episodes that the process holds: with what concerns them, and with their run."""
    (desk,) = scheduler._desks.values()
    return set(desk.concerning), set(scheduler._run_of)


async def test_nobody_of_a_removed_run_stays_in_memory_and_all_is_told_as_before(bench: Bench) -> None:
    await live(bench)
    await bench.feed(gateway_pb2.RunEnded(run_id="r", reason="stopped"))
    before = await told(bench)
    assert remembered(bench.scheduler) == (set(EVERYBODY), set(EVERYBODY))

    await bench.feed(gateway_pb2.RunRemoved(run_id="r"))

    assert remembered(bench.scheduler) == (set(), UNTOLD)
    after = await told(bench)
    # The removal itself revokes the evaluation that still waited; nothing else is said anew.
    waited = before["w"]
    assert [line.fact for line in after["w"].lines][len(waited.lines) :] == ["revoked: run_removed"]
    assert {name: after[name] for name in EVERYBODY if name != "w"} == {
        name: before[name] for name in EVERYBODY if name != "w"
    }
    assert {name: after[name].verdict for name in EVERYBODY} == {
        "g.0": "trained",
        "g.1": "trained",
        "v": "evaluated",
        **dict.fromkeys(("late", "off", "h.0", "h.1", "half", "w"), "dropped"),
    }
    with pytest.raises(NotFound, match="'nobody'"):
        await bench.scheduler.explain("nobody")


async def test_what_is_heard_of_a_removed_runs_episodes_later_is_told_and_not_kept(bench: Bench) -> None:
    await live(bench)
    await bench.feed(gateway_pb2.RunEnded(run_id="r", reason="stopped"), gateway_pb2.RunRemoved(run_id="r"))
    await bench.feed(rollout_pb2.EpisodeStarted(episode_id="h.0", run_id="r"), submitted("after", "y"))
    assert remembered(bench.scheduler) == (set(), UNTOLD)
    assert [line.fact for line in (await told(bench))["h.0"].lines][-1] == "started"
    assert (await bench.scheduler.explain("after"))[2] == "dropped"


async def test_a_new_process_keeps_as_little_and_tells_the_same_and_the_books_and_the_record_hold(bench: Bench) -> None:
    await live(bench)
    await bench.feed(gateway_pb2.RunEnded(run_id="r", reason="stopped"), gateway_pb2.RunRemoved(run_id="r"))
    before = await told(bench)
    ledger = await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    assert (ledger.submitted, ledger.trained, ledger.in_flight, ledger.balanced) == (7, 2, 0, True)
    bench.scheduler, bench.consumer = bench.process()
    await bench.scheduler.load()
    assert remembered(bench.scheduler) == (set(), UNTOLD)
    assert await told(bench) == before
    assert await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id="r"), None) == ledger
    entries = await bench.scheduler._journal.read("r", 0)
    assert disagreement([(entry.taken, entry.decisions) for entry in entries]) == ""
