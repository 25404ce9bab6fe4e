"""The journal on a real store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clocks import ManualClock
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import rollout_pb2

from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Event
from services.kernel.errors import Transient
from services.kernel.event_store import EventStore, Write
from services.rollout.adapters.journal import StoredJournal
from services.rollout.domain.episode import Blob, Ending, EpisodeStart, Outcome, Text, TurnServed

START = EpisodeStart("ep-1", "run-1", 30.0, 60.0, "corr-1", "scheduler.admission/ep-1@1", "")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[StoredJournal]:
    clock = ManualClock(NOW)
    store = EventStore.open(f"sqlite:///{tmp_path}/rollout.db", Catalogue.from_modules([rollout_pb2]), clock)
    yield StoredJournal(store, clock)
    await store.close()


async def test_started_and_finished_are_written_once_however_often_they_are_told(journal: StoredJournal):
    ending = Ending("ep-1", "run-1", Outcome.COMPLETED, Text("42"), "", 3.5, 2, 1)
    for _ in range(2):
        await journal.record_started(START, "tool_loop")
    for _ in range(2):
        await journal.record_ended(START, ending)
    started, finished = await journal.store.read("rollout.episode/ep-1")
    assert isinstance(started.message, rollout_pb2.EpisodeStarted) and started.message.agent == "tool_loop"
    assert started.message.started_at.ToDatetime(UTC) == NOW
    end = finished.message
    assert isinstance(end, rollout_pb2.EpisodeFinished)
    assert (end.outcome, end.answer, end.agent_wall_s) == (task_pb2.OUTCOME_COMPLETED, "42", 3.5)
    assert (end.tool_calls, end.failed_tool_calls) == (2, 1)
    assert (finished.cause.correlation_id, finished.cause.causation_id) == ("corr-1", "scheduler.admission/ep-1@1")


async def test_the_first_end_stands(journal: StoredJournal):
    await journal.record_started(START, "tool_loop")
    await journal.record_ended(START, Ending("ep-1", "run-1", Outcome.CANCELLED, detail="called off"))
    await journal.record_ended(START, Ending("ep-1", "run-1", Outcome.COMPLETED, Text("42")))
    await journal.record_started(START, "tool_loop")
    events = await journal.store.read("rollout.episode/ep-1")
    assert len(events) == 2
    end = events[1].message
    assert isinstance(end, rollout_pb2.EpisodeFailed)
    assert (end.outcome, end.detail) == (task_pb2.OUTCOME_CANCELLED, "called off")


async def test_an_episode_that_never_started_can_fail(journal: StoredJournal):
    await journal.record_ended(START, Ending("ep-1", "run-1", Outcome.INFRA, detail="gateway away"))
    (event,) = await journal.store.read("rollout.episode/ep-1")
    assert isinstance(event.message, rollout_pb2.EpisodeFailed) and event.version == 1


@pytest.mark.parametrize("text", [Text("[1]"), Text(blob=Blob("file:///b", "ab", 70_000, "text/plain"))])
async def test_a_served_turn_comes_back_as_it_was(journal: StoredJournal, text: Text):
    served = TurnServed(text, 0.25, 2, 1)
    await journal.record_turn("ep-1", 1, served)
    await journal.record_turn("ep-1", 1, TurnServed(Text("[2]"), 9.0))
    assert await journal.turns("ep-1") == {1: served}
    assert await journal.turns("ep-2") == {}


async def test_an_answer_above_64_kib_travels_by_reference(journal: StoredJournal):
    blob = Blob("file:///b", "ab", 70_000, "text/plain")
    await journal.record_ended(START, Ending("ep-1", "run-1", Outcome.COMPLETED, Text(blob=blob)))
    end = (await journal.store.read("rollout.episode/ep-1"))[0].message
    assert isinstance(end, rollout_pb2.EpisodeFinished)
    assert (end.answer, end.answer_blob.uri, end.answer_blob.size_bytes) == ("", "file:///b", 70_000)


ELSEWHERE = Ending("ep-1", "run-1", Outcome.COMPLETED, Text("42"), agent_wall_s=3.5)


async def test_what_was_run_elsewhere_ends_once_however_often_it_is_told_and_never_starts(journal: StoredJournal):
    for _ in range(2):
        await journal.record_elsewhere(START, ELSEWHERE)
    (finished,) = await journal.store.read("rollout.episode/ep-1")
    assert isinstance(finished.message, rollout_pb2.EpisodeFinished)
    assert (finished.message.answer, finished.message.agent_wall_s, finished.version) == ("42", 3.5, 1)


@pytest.mark.parametrize("end", [Outcome.COMPLETED, Outcome.CANCELLED])
async def test_what_is_missing_of_one_that_was_run_elsewhere_is_added(journal: StoredJournal, end: Outcome):
    await journal.record_started(START, "recorded")
    if end is Outcome.CANCELLED:
        await journal.record_ended(START, Ending("ep-1", "run-1", end))
    await journal.record_elsewhere(START, ELSEWHERE)
    _, last = await journal.store.read("rollout.episode/ep-1")
    assert isinstance(
        last.message, rollout_pb2.EpisodeFailed if end is Outcome.CANCELLED else rollout_pb2.EpisodeFinished
    )


async def test_episodes_that_end_together_are_one_commit_and_a_conflict_is_its_own(journal: StoredJournal, monkeypatch):
    commits: list[int] = []
    append = journal.store.append

    async def counted(writes: Sequence[Write]) -> list[Event]:
        commits.append(len(writes))
        return await append(writes)

    monkeypatch.setattr(journal.store, "append", counted)
    starts = [replace(START, episode_id=f"ep-{number}") for number in range(12)]
    await journal.record_ended(starts[7], Ending("ep-7", "run-1", Outcome.CANCELLED))
    endings = [Ending(start.episode_id, "run-1", Outcome.COMPLETED, Text("42")) for start in starts]
    commits.clear()
    await asyncio.gather(*(journal.record_elsewhere(start, end) for start, end in zip(starts, endings, strict=True)))
    # All twelve at once, until one of them is refused: then each for itself.
    assert commits == [12, *[1] * 12]
    kinds = [
        [type(event.message).__name__ for event in await journal.store.read(f"rollout.episode/{start.episode_id}")]
        for start in starts
    ]
    assert kinds.pop(7) == ["EpisodeFailed"] and kinds == [["EpisodeFinished"]] * 11


async def test_one_that_is_called_off_or_fails_does_not_keep_the_others(journal: StoredJournal, monkeypatch):
    async def away(writes: Sequence[Write]) -> list[Event]:
        raise Transient("event store: away")

    tasks = [
        asyncio.create_task(journal.record_elsewhere(replace(START, episode_id=f"ep-{number}"), ELSEWHERE))
        for number in range(3)
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in told] == [asyncio.CancelledError, type(None), type(None)]
    assert len(await journal.store.read("rollout.episode/ep-2")) == 1
    monkeypatch.setattr(journal.store, "append", away)
    with pytest.raises(Transient):
        await journal.record_elsewhere(replace(START, episode_id="ep-3"), ELSEWHERE)
    monkeypatch.undo()
    await journal.record_elsewhere(replace(START, episode_id="ep-4"), ELSEWHERE)
    assert await journal.store.read("rollout.episode/ep-3") == []


def elsewhere(number: int) -> tuple[EpisodeStart, Ending]:
    start = replace(START, episode_id=f"ep-{number}")
    return start, Ending(start.episode_id, "run-1", Outcome.COMPLETED, Text("42"))


async def test_one_that_may_wait_goes_with_the_next_that_may_not(journal: StoredJournal, monkeypatch):
    monkeypatch.setattr("services.rollout.adapters.journal.LINGER_S", 3600.0)
    start, ending = elsewhere(1)
    waits = asyncio.create_task(journal.record_elsewhere(start, ending))
    await journal.turns("ep-1")
    assert not waits.done() and await journal.store.read("rollout.episode/ep-1") == []
    await journal.record_started(replace(START, episode_id="ep-2"), "tool_loop")
    await asyncio.wait_for(waits, 10)
    assert len(await journal.store.read("rollout.episode/ep-1")) == 1


async def test_a_full_commit_waits_for_nobody(journal: StoredJournal, monkeypatch):
    monkeypatch.setattr("services.rollout.adapters.journal.LINGER_S", 3600.0)
    waiting = [journal.record_elsewhere(start, end) for start, end in map(elsewhere, range(250))]
    tasks = [asyncio.create_task(one) for one in waiting]
    done, pending = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 200:
        more, pending = await asyncio.wait(pending, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert more, "a full commit stands still"
        done |= more
    assert (len(done), len(pending)) == (200, 50)
    await journal.record_started(replace(START, episode_id="ep-250"), "tool_loop")
    await asyncio.wait_for(asyncio.gather(*pending), 10)
