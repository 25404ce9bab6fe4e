"""The journal on a real store."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import rollout_pb2

from services.kernel.catalogue import Catalogue
from services.kernel.clock import ManualClock
from services.kernel.event_store import EventStore
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
