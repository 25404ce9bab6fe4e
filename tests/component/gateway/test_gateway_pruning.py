"""What the gateway frees of pruned episodes, beside what goes with removed runs: one count for both."""

from pathlib import Path

import pytest
from forgerl.events.v1 import gateway_pb2, scheduler_pb2
from forgerl.gateway.v1 import record_pb2
from gateway_engine import ScriptedEngine
from gateway_rig import Rig, sealed, submission
from google.protobuf.message import Message
from test_gateway_episodes import Bus, finished
from test_gateway_removal import large_turn, remove, run_of, stored, taken_in

from services.contract.references import References
from services.contract.trajectory import decode
from services.gateway import freeing as module
from services.gateway.freeing import Freeing
from services.kernel.envelope import Cause, Event
from services.kernel.errors import Conflict
from services.kernel.event_store import Write
from services.kernel.inbox import Inbox


class Scheduler:
    """Says which episodes are pruned, to one gateway process after the other."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.versions = rig, dict[str, int]()
        self.freeing = Freeing(rig.store, rig.blobs)

    def pruned(self, *episode_ids: str, run_id: str = "r1") -> Event:
        version = self.versions[run_id] = self.versions.get(run_id, 0) + 1
        told = scheduler_pb2.EpisodesPruned(run_id=run_id, episode_ids=episode_ids, keep_steps=1)
        return Event(f"scheduler.retention/{run_id}", version, self.rig.clock.now(), told, Cause("", "", ""))

    async def tell(self, *events: Event) -> list[tuple[str, int, int]]:
        """Deliver; what is recorded of these events: id, blobs, and those that stay."""
        await Inbox(self.rig.store, "gateway").handle(events, self.freeing.handle)
        records: list[Message] = []
        for run_id in sorted({event.key for event in events}):
            records += await self.rig.published(f"gateway.freed/{run_id}")
        ids = {event.id for event in events}
        own = [one for one in records if isinstance(one, record_pb2.EpisodesFreed) and one.event_id in ids]
        return [(one.event_id, one.blobs, one.kept_blobs) for one in own]


async def test_a_pruned_trajectory_goes_and_one_that_was_taken_in_elsewhere_stays(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    theirs = await run_of(rig, engine)
    own = await taken_in(rig, theirs)
    scheduler = Scheduler(rig)
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 0, 1)]
    assert await rig.blobs.exists(theirs)
    # With the one that took it in it goes, since the first keeps nothing any more.
    assert await scheduler.tell(scheduler.pruned("ep-2", run_id="r2")) == [("scheduler.retention/r2@1", 2, 0)]
    assert not await rig.blobs.exists(theirs) and not await rig.blobs.exists(own)
    assert stored(tmp_path) == 0


@pytest.mark.parametrize("anew", [False, True])
async def test_pruned_and_removed_episodes_keep_nothing_for_each_other(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path, anew: bool
):
    theirs = await run_of(rig, engine)
    await taken_in(rig, theirs)
    await taken_in(rig, theirs, "r3", "ep-3")
    scheduler = Scheduler(rig)
    await scheduler.tell(scheduler.pruned("ep-1"))
    assert await remove(rig, "r2", "ep-2") == 1
    assert await rig.blobs.exists(theirs)
    if anew:
        scheduler.freeing = Freeing(rig.store, rig.blobs)
    assert await scheduler.tell(scheduler.pruned("ep-3", run_id="r3")) == [("scheduler.retention/r3@1", 2, 0)]
    assert stored(tmp_path) == 0
    assert await remove(rig, "r1", "ep-1") == 0


async def test_of_two_that_go_together_the_later_takes_the_shared_blob(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    await taken_in(rig, await run_of(rig, engine))
    scheduler = Scheduler(rig)
    told = await scheduler.tell(scheduler.pruned("ep-1"), scheduler.pruned("ep-2", run_id="r2"))
    assert told == [("scheduler.retention/r1@1", 0, 1), ("scheduler.retention/r2@1", 2, 0)]
    assert stored(tmp_path) == 0


async def test_a_large_turn_goes_with_the_last_episode_that_sampled_it(rig: Rig, engine: ScriptedEngine, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    tokens = await large_turn(rig, engine, "ep-1")
    turn = (await rig.store.read("gateway.turns/ep-1"))[0].message
    scheduler, over = Scheduler(rig), gateway_pb2.TrajectorySealed(run_id="r1")
    for name in ("ep-2", "ep-3"):
        await rig.desk.submit(submission(name, "r1"))
    await rig.store.append(
        [Write("gateway.turns/ep-2", 0, (turn,)), *(Write(f"gateway.episode/ep-{n}", 1, (over,)) for n in (1, 2, 3))]
    )
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 0, 1)]
    # Counted once begun, later turns are seen as well.
    await rig.store.append([Write("gateway.turns/ep-3", 0, (turn,))])
    assert await scheduler.tell(scheduler.pruned("ep-2")) == [("scheduler.retention/r1@2", 0, 1)]
    assert await rig.blobs.exists(tokens)
    assert await scheduler.tell(scheduler.pruned("ep-3")) == [("scheduler.retention/r1@3", 1, 0)]
    assert not await rig.blobs.exists(tokens)


async def test_turns_are_not_read_where_no_pruned_episode_names_a_large_one(
    rig: Rig, engine: ScriptedEngine, monkeypatch
):
    await run_of(rig, engine)
    scheduler, asked = Scheduler(rig), list[str]()
    notifications = rig.store.notifications

    async def noted(after: int, limit: int, types: list[str]):
        asked.extend(types)
        return await notifications(after, limit, types)

    monkeypatch.setattr(rig.store, "notifications", noted)
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 1, 0)]
    assert gateway_pb2.TrajectorySealed.DESCRIPTOR.full_name in asked
    assert record_pb2.TurnRecorded.DESCRIPTOR.full_name not in asked


async def test_what_a_refused_record_has_freed_is_counted_by_the_next(rig: Rig, engine: ScriptedEngine, monkeypatch):
    """Another replica has moved the stream: the inbox decides anew, and there is nothing left to free."""
    await run_of(rig, engine)
    scheduler, append, calls = Scheduler(rig), rig.store.append, 0

    async def refused_once(*given, **named):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Conflict("moved meanwhile")
        return await append(*given, **named)

    monkeypatch.setattr(rig.store, "append", refused_once)
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 1, 0)]
    assert calls == 2


async def test_an_episode_whose_end_is_not_heard_of_yet_keeps_its_turns_for_the_seal(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    """The gateway was down: of what came meanwhile, the pruning is delivered before the end."""
    tokens = await large_turn(rig, engine, "ep-1")
    scheduler = Scheduler(rig)
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 0, 0)]
    assert await rig.blobs.exists(tokens)
    await Bus(rig).deliver(finished())
    assert decode(await rig.blobs.get(sealed(await rig.published("gateway.episode/ep-1")).trajectory))
    await rig.desk.stop_run("r1")
    assert await remove(rig, "r1", "ep-1") == 2
    assert stored(tmp_path) == 0


@pytest.mark.parametrize("heard", [False, True])
async def test_a_removed_run_is_not_remembered(rig: Rig, engine: ScriptedEngine, tmp_path: Path, heard: bool):
    """Neither who was pruned or sealed of it, nor what they named; what it shared goes with the other run."""
    theirs = await run_of(rig, engine)
    await taken_in(rig, theirs)
    scheduler = Scheduler(rig)
    assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@1", 0, 1)]
    assert await remove(rig, "r1", "ep-1") == 0
    if heard:
        assert await scheduler.tell(scheduler.pruned("ep-1")) == [("scheduler.retention/r1@2", 0, 0)]
    count = scheduler.freeing._trajectories
    assert set(count.sealed) == ({"r2"} if heard else {"r1", "r2"})
    assert await scheduler.tell(scheduler.pruned("ep-2", run_id="r2")) == [("scheduler.retention/r2@1", 2, 0)]
    assert stored(tmp_path) == 0
    assert await remove(rig, "r2", "ep-2") == 0
    await scheduler.tell(scheduler.pruned("ep-2", run_id="r2"))
    references = await count.catch_up(rig.store)
    assert vars(references) == vars(References()) and count.sealed == {}
