"""A removed run's long texts, on a real store and real blobs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from clocks import ManualClock
from forgerl.events.v1 import gateway_pb2, rollout_pb2
from forgerl.rollout.v1.journal_pb2 import TextsFreed
from google.protobuf.message import Message

from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.rollout.adapters import freeing
from services.rollout.adapters.freeing import RunTexts
from services.rollout.adapters.journal import StoredJournal
from services.rollout.adapters.texts import BlobTexts
from services.rollout.domain.episode import Ending, EpisodeStart, Outcome, TurnServed
from services.rollout.entrypoints.consumer import AdmissionConsumer
from services.rollout.entrypoints.removals import Consumer

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def long(text: str) -> str:
    return text * 70_000


@dataclass
class Rig:
    """Rollout's store, and the run topic as rollout hears it."""

    store: EventStore
    blobs: Blobs
    folder: Path
    told: int = 0

    async def episode(self, run_id: str, episode_id: str, said: str, answer: str) -> None:
        """One that asked a tool and ended."""
        journal, texts = StoredJournal(self.store, ManualClock(NOW)), BlobTexts(self.blobs)
        start = EpisodeStart(episode_id, run_id, 30.0, 60.0)
        await journal.record_started(start, "tool_loop")
        await journal.record_turn(episode_id, 0, TurnServed(await texts.pack(said), 0.1, 1))
        ending = Ending(episode_id, run_id, Outcome.COMPLETED, await texts.pack(answer))
        await journal.record_ended(start, ending)

    async def tell(self, *messages: Message) -> None:
        """Events of the run topic, each of a run of its own unless the run was told of before."""
        admissions = AdmissionConsumer(None, "queue", 30.0, 60.0, AsyncMock())  # type: ignore[arg-type]
        consumer = Consumer(admissions, RunTexts(self.store, self.blobs))
        events: list[Event] = []
        for message in messages:
            self.told += 1
            events.append(Event(f"gateway.run/{self.told}", 1, NOW, message, Cause("", "", "")))
        await Inbox(self.store, "rollout").handle(events, consumer.handle)

    async def remove(self, *run_ids: str) -> None:
        await self.tell(*(gateway_pb2.RunRemoved(run_id=run_id) for run_id in run_ids))

    async def freed(self, run_id: str) -> list[int]:
        events = [event.message for event in await self.store.read(f"rollout.run/{run_id}")]
        return [event.texts for event in events if isinstance(event, TextsFreed)]

    def stored(self) -> int:
        return sum(path.is_file() for path in (self.folder / "blobs").rglob("*"))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    catalogue = Catalogue.from_modules([rollout_pb2, gateway_pb2])
    store = EventStore.open(f"sqlite:///{tmp_path}/rollout.db", catalogue, ManualClock(NOW))
    yield Rig(store, Blobs.open(f"file://{tmp_path}/blobs"), tmp_path)
    await store.close()


async def test_answers_and_what_tools_said_go_with_their_run_and_no_other(rig: Rig, monkeypatch):
    # Several pages, so that an episode's start is read pages before its end.
    monkeypatch.setattr(freeing, "PAGE", 2)
    await rig.episode("run-1", "ep-1", long("a"), long("b"))
    await rig.episode("run-1", "ep-2", "short", "short")
    await rig.episode("run-2", "ep-3", long("c"), long("d"))
    await rig.tell(gateway_pb2.RunEnded(run_id="run-1"))
    assert rig.stored() == 4
    await rig.remove("run-1")
    assert rig.stored() == 2 and await rig.freed("run-1") == [2]
    await rig.remove("run-2")
    assert rig.stored() == 0


async def test_a_text_that_two_runs_share_goes_with_the_last(rig: Rig):
    await rig.episode("run-1", "ep-1", long("a"), long("same"))
    await rig.episode("run-2", "ep-2", long("same"), "short")
    await rig.remove("run-2")
    assert rig.stored() == 2 and await rig.freed("run-2") == [0]
    await rig.remove("run-1")
    assert rig.stored() == 0 and await rig.freed("run-1") == [2]


async def test_runs_that_are_removed_together_keep_nothing_for_each_other(rig: Rig):
    await rig.episode("run-1", "ep-1", long("same"), "")
    await rig.episode("run-2", "ep-2", long("same"), "")
    await rig.remove("run-1", "run-2")
    assert rig.stored() == 0


async def test_told_again_it_frees_what_came_since(rig: Rig):
    await rig.episode("run-1", "ep-1", long("a"), "")
    await rig.remove("run-1")
    # It was in flight when its run was removed.
    await rig.episode("run-1", "ep-2", long("b"), "")
    assert rig.stored() == 1
    await rig.remove("run-1")
    assert rig.stored() == 0 and await rig.freed("run-1") == [1, 1]


async def test_a_freeing_that_was_cut_short_is_completed_when_it_is_delivered_again(rig: Rig, monkeypatch):
    await rig.episode("run-1", "ep-1", long("a"), long("b"))
    delete, calls = rig.blobs.delete, 0

    async def fail_after_one(uri: str) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the disk is away")
        return await delete(uri)

    with monkeypatch.context() as broken:
        broken.setattr(rig.blobs, "delete", fail_after_one)
        with pytest.raises(OSError, match="away"):
            await rig.remove("run-1")
    assert rig.stored() == 1 and await rig.freed("run-1") == []
    rig.told -= 1
    await rig.remove("run-1")
    assert rig.stored() == 0 and await rig.freed("run-1") == [1]
