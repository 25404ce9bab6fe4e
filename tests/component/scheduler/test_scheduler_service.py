"""The scheduler on a real SQLite store: what it publishes, and that crashes, repeats and rivals change nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from forgerl.common.v1 import blob_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.trainer.v1 import report_pb2
from scheduler_bench import SERVICE, Bench, after, group, run_spec, submitted

from services.kernel.clock import SystemClock
from services.kernel.errors import NotFound, Permanent
from services.kernel.inbox import Inbox
from services.scheduler.entrypoints.rpc import SchedulerRpc
from services.scheduler.entrypoints.timer import Timer


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_complete_group_is_admitted_with_its_deadline_and_its_own_trace(bench: Bench) -> None:
    await bench.open()
    await bench.feed(submitted("g.0", "g"))
    assert await bench.store.streams("scheduler.admission/") == []
    await bench.feed(submitted("g.1", "g"))
    for member in ("g.0", "g.1"):
        (event,) = await bench.store.read(f"scheduler.admission/{member}")
        message = event.message
        assert isinstance(message, scheduler_pb2.EpisodeAdmitted)
        assert (message.run_id, message.group_id, message.domain, message.position) == ("r", "g", "tool", 0)
        assert message.kind == task_pb2.EPISODE_KIND_TRAIN
        assert message.deadline.ToDatetime(tzinfo=after(0).tzinfo) == after(120)
        assert event.cause.correlation_id == f"corr-{member}"
        assert event.cause.causation_id == f"gateway.episode/{member}@1"
        assert event.cause.traceparent.startswith("00-abab")


async def test_a_batch_is_published_after_its_manifest_was_written(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.finish("g.1", 0.0)
    await bench.finish("g.0", 1.0)
    (batch,) = await bench.batches()
    assert (batch.batch, batch.item_count, batch.episode_count, batch.out_of_order_max) == (1, 1, 2, 0)
    (item,) = (await bench.manifest(batch)).items
    assert [(e.episode_id, e.eligible, e.score.performance) for e in item.episodes] == [
        ("g.0", True, 1.0),
        ("g.1", True, 0.0),
    ]
    assert await bench.blobs.get(item.episodes[0].trajectory) == b"trajectory of g.0"


async def test_a_third_member_of_a_group_of_two_is_revoked_and_in_no_manifest(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"), submitted("g.2", "g"))
    await bench.finish("g.0", 1.0)
    await bench.finish("g.1", 0.0)
    await bench.train(1)
    bench.scheduler, bench.consumer = bench.process()  # a process that has only the record knows it too
    await bench.scheduler.load()
    await bench.feed(submitted("g.3", "g"))
    for late in ("g.2", "g.3"):
        (revoked,) = await bench.published(f"scheduler.admission/{late}")
        assert isinstance(revoked, scheduler_pb2.EpisodeRevoked)
        assert revoked.reason == "group_closed"
        _, lines, verdict = await bench.scheduler.explain(late)
        assert (lines[-1].text, verdict) == ("revoked: group_closed", "dropped")
    (batch,) = await bench.batches()
    assert [e.episode_id for i in (await bench.manifest(batch)).items for e in i.episodes] == ["g.0", "g.1"]
    ledger = await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    assert (ledger.submitted, ledger.trained, ledger.in_flight, ledger.balanced) == (4, 2, 0, True)
    assert dict(ledger.dropped) == {"group_closed": 2}


async def test_one_commit_for_a_batch_of_events(bench: Bench) -> None:
    """A run's whole beginning in one delivery: everything follows from it in one transaction."""
    created = gateway_pb2.RunCreated(run_id="r", spec=run_spec())
    endings = [m for g, p in (("g.0", 1.0), ("g.1", 0.0)) for m in await bench.ending(g, p)]
    await bench.feed(*group("g"), trainer_pb2.PolicyPublished(run_id="r", step=0), created, *endings)
    assert len(await bench.batches()) == 1
    assert await bench.store.version("scheduler.queue/r") == 10


async def test_repeated_events_change_nothing(bench: Bench) -> None:
    await bench.open()
    events = await bench.feed(*group("g"))
    events += await bench.feed(*await bench.ending("g.0", 1.0), *await bench.ending("g.1", 0.0))
    before = len(await bench.store.notifications(0, 1000))
    await bench.deliver(events)
    bench.scheduler, bench.consumer = bench.process()
    await bench.deliver(events)
    assert len(await bench.store.notifications(0, 1000)) == before


async def test_a_crash_between_decision_and_commit_loses_and_doubles_nothing(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    endings = [bench.event(m) for e, p in (("g.0", 1.0), ("g.1", 0.0)) for m in await bench.ending(e, p)]
    writes = await bench.consumer.handle(endings)  # decided, manifest written, and then killed
    assert any("scheduler.batch" in write.stream for write in writes)
    assert await bench.batches() == []
    bench.scheduler, bench.consumer = bench.process()
    await bench.deliver(endings)
    assert [batch.batch for batch in await bench.batches()] == [1]


async def test_a_commit_that_failed_in_a_living_process_is_decided_anew(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    endings = [bench.event(m) for e, p in (("g.0", 1.0), ("g.1", 0.0)) for m in await bench.ending(e, p)]
    await bench.consumer.handle(endings)  # the answer never reaches the store
    await bench.deliver(endings)
    assert [batch.batch for batch in await bench.batches()] == [1]
    assert (await bench.scheduler.state("r")).handed == 1


async def test_two_replicas_take_turns(bench: Bench) -> None:
    """Each event goes to either of them; together they decide as one would."""
    await bench.open()
    consumers = [bench.consumer, bench.process()[1]]
    for index in range(3):
        for number, message in enumerate(group(f"g{index}")):
            await Inbox(bench.store, SERVICE).handle([bench.event(message)], consumers[number].handle)
    for index in range(3):
        for number, performance in enumerate((1.0, 0.0)):
            for message in await bench.ending(f"g{index}.{number}", performance):
                consumers.reverse()
                await Inbox(bench.store, SERVICE).handle([bench.event(message)], consumers[0].handle)
        await bench.train(index + 1)
    assert [batch.batch for batch in await bench.batches()] == [1, 2, 3]
    assert (await bench.scheduler.state("r")).tally.trained == 6


async def test_a_rival_that_decided_first_wins(bench: Bench) -> None:
    """Both decided on the same version; the second commit conflicts, and its process decides on what is there."""
    await bench.open()
    rival = bench.process()[1]
    first, second = (bench.event(message) for message in group("g"))
    stale = await bench.consumer.handle([first])
    await Inbox(bench.store, SERVICE).handle([first], rival.handle)
    assert [write.expected_version for write in stale] == [2]
    await Inbox(bench.store, SERVICE).handle([first, second], bench.consumer.handle)
    assert await bench.store.streams("scheduler.admission/") == ["scheduler.admission/g.0", "scheduler.admission/g.1"]


async def test_deadline_revokes_by_a_tick_that_is_recorded(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.finish("g.0")
    assert bench.scheduler.next_deadline_s() == after(120).timestamp()
    bench.wait(119)
    await bench.scheduler.tick()
    assert len(await bench.published("scheduler.admission/g.1")) == 1
    bench.wait(1)
    await bench.scheduler.tick()
    (_, revoked) = await bench.published("scheduler.admission/g.1")
    assert isinstance(revoked, scheduler_pb2.EpisodeRevoked)
    assert revoked.reason == "deadline"
    (dropped,) = await bench.published("scheduler.batch/r")
    assert isinstance(dropped, scheduler_pb2.SampleDropped)
    assert (dropped.reason, dropped.position, list(dropped.episode_ids)) == ("too_few_eligible", 0, ["g.0", "g.1"])
    assert bench.scheduler.next_deadline_s() is None
    version = await bench.store.version("scheduler.queue/r")
    await bench.scheduler.tick()
    assert await bench.store.version("scheduler.queue/r") == version, "no tick without a deadline"


async def test_the_timer_ticks_by_itself_when_a_deadline_is_due_and_its_grace_is_over(
    tmp_path: Path, eventually: Callable[..., Awaitable[None]]
) -> None:
    bench = Bench(tmp_path, SystemClock())
    timer = asyncio.create_task(Timer(bench.scheduler, bench.clock, grace_s=0.3).run())
    started_s = bench.clock.monotonic()
    await bench.open(deadline_s=0.1)
    await bench.feed(*group("g"))

    async def revoked() -> bool:
        return len(await bench.published("scheduler.admission/g.1")) == 2

    await eventually(revoked)
    assert bench.clock.monotonic() - started_s >= 0.3
    timer.cancel()


async def test_a_new_process_knows_deadlines_from_the_start(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    scheduler, _ = bench.process()
    assert scheduler.next_deadline_s() is None
    await scheduler.load()
    assert scheduler.next_deadline_s() == after(120).timestamp()


async def test_cancelled_episode_is_revoked_for_the_rollout(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.feed(gateway_pb2.EpisodeCancelled(episode_id="g.0", run_id="r", reason="user"))
    messages = await bench.published("scheduler.admission/g.0")
    assert [type(message).__name__ for message in messages] == ["EpisodeAdmitted", "EpisodeRevoked"]


async def test_evaluation_is_admitted_without_a_position(bench: Bench) -> None:
    await bench.open()
    await bench.feed(submitted("v", pinned_step=0), submitted("w", pinned_step=1))
    (admitted,) = await bench.published("scheduler.admission/v")
    assert isinstance(admitted, scheduler_pb2.EpisodeAdmitted)
    assert admitted.kind == task_pb2.EPISODE_KIND_EVALUATION
    assert not admitted.HasField("position")
    assert await bench.published("scheduler.admission/w") == []


async def test_capacity_window_and_ledger(bench: Bench) -> None:
    rpc = SchedulerRpc(bench.scheduler)
    with pytest.raises(NotFound):
        await rpc.GetCapacity(pb.GetCapacityRequest(run_id="r"), None)
    await bench.open(in_flight_items=2)
    for name in ("g0", "g1", "g2"):
        await bench.feed(*group(name))
    capacity = await rpc.GetCapacity(pb.GetCapacityRequest(run_id="r"), None)
    assert (capacity.queued_items, capacity.in_flight_items, capacity.wanted_items) == (1, 2, 3)
    assert (dict(capacity.wanted_by_domain), dict(capacity.target_by_domain)) == ({"tool": 3}, {"tool": 6})
    await bench.finish("g1.0", 1.0)
    await bench.finish("g1.1", 0.0)
    await bench.finish("g0.1", 0.0)
    window = await rpc.GetWindow(pb.GetWindowRequest(run_id="r"), None)
    assert (window.head, window.window_items, window.queue_items) == (0, 2, 4)
    assert [(i.position, i.group_id, i.state, i.terminal_members) for i in window.items] == [
        (0, "g0", "in_flight", 1),
        (1, "g1", "consumed", 2),
    ]
    assert dict(window.achieved_mix) == {"tool": 1.0}
    reports = [report_pb2.EpisodeReport(episode_id=f"g1.{i}", trained=True, mean_advantage=0.5) for i in range(2)]
    await bench.train(1, *reports)
    ledger = await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    assert (ledger.submitted, ledger.trained, ledger.in_flight, ledger.batches) == (6, 2, 4, 1)
    assert ledger.out_of_order_max == 1


async def test_why_an_episode_was_trained(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.finish("g.1", 0.0)
    await bench.finish("g.0", 1.0)
    report = report_pb2.EpisodeReport(episode_id="g.0", trained=True, mean_advantage=0.5, trained_tokens=9)
    await bench.train(1, report)
    bench.scheduler, bench.consumer = bench.process()
    await bench.scheduler.load()
    why = await SchedulerRpc(bench.scheduler).ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="g.0"), None)
    assert (why.run_id, why.verdict) == ("r", "trained")
    assert [(line.event_id, line.fact.partition(":")[0]) for line in why.lines] == [
        ("gateway.episode/g.0@1", "submitted"),
        ("scheduler.queue/r@3", "queued"),
        ("scheduler.queue/r@4", "admitted"),
        ("reward.score/g.0@1", "scored"),
        ("gateway.episode/g.0@2", "sealed"),
        ("rollout.episode/g.0@1", "finished"),
        ("scheduler.queue/r@10", "taken from position 0, 0 behind the head, into batch 1"),
        ("scheduler.queue/r@10", "handed to the trainer in batch 1"),
        ("trainer.policy/r@2", "step 1 trained 9 tokens of it"),
    ]
    with pytest.raises(NotFound, match="'nobody'"):
        await SchedulerRpc(bench.scheduler).ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="nobody"), None)


async def test_a_report_that_cannot_be_read_does_not_stop_the_run(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.finish("g.1", 0.0)
    await bench.finish("g.0", 1.0)
    gone = blob_pb2.BlobRef(uri=(await bench.batches())[0].manifest.uri.replace("sha256/", "sha256/00"), sha256="00")
    await bench.feed(trainer_pb2.StepCompleted(run_id="r", step=1, report=gone))
    assert (await bench.scheduler.state("r")).tally.trained == 2


async def test_removing_a_run_frees_its_manifests(bench: Bench) -> None:
    await bench.open()
    await bench.feed(*group("g"))
    await bench.finish("g.1", 0.0)
    await bench.finish("g.0", 1.0)
    (batch,) = await bench.batches()
    await bench.feed(gateway_pb2.RunEnded(run_id="r", reason="stopped"), gateway_pb2.RunRemoved(run_id="r"))
    assert not await bench.blobs.exists(batch.manifest)


async def test_a_run_with_impossible_numbers_is_refused_and_nothing_is_kept(bench: Bench) -> None:
    created = gateway_pb2.RunCreated(run_id="r", spec=run_spec(window_items=9))
    with pytest.raises(Permanent, match=r"window_items: given 9; allowed 1\.\.4"):
        await bench.feed(created)
    assert await bench.store.streams("") == []


async def test_an_event_without_a_run_is_refused(bench: Bench) -> None:
    with pytest.raises(Permanent, match="run_id is empty"):
        await bench.feed(gateway_pb2.EpisodeCancelled(episode_id="e"))
