"""Long texts of pruned episodes, beside those of removed runs: one count for both."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clocks import ManualClock
from forgerl.events.v1 import gateway_pb2, rollout_pb2, scheduler_pb2
from forgerl.rollout.v1.journal_pb2 import TextsFreed
from google.protobuf.message import Message

from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.kernel.errors import Conflict
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.rollout.adapters import freeing
from services.rollout.adapters.freeing import RunTexts
from services.rollout.adapters.journal import StoredJournal
from services.rollout.adapters.texts import BlobTexts
from services.rollout.domain.episode import Ending, EpisodeStart, Outcome, TurnServed

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Rollout:
    """Its store, and what it hears of pruning and removal."""

    def __init__(self, store: EventStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.blobs = Blobs.open(f"file://{folder}/blobs")
        self.texts = RunTexts(store, self.blobs)
        self.versions: dict[str, int] = {}

    async def episode(self, run_id: str, episode_id: str, said: str, answer: str) -> None:
        """One that asked a tool and ended; a word stands for a text of 70 kB."""
        journal, texts = StoredJournal(self.store, ManualClock(NOW)), BlobTexts(self.blobs)
        start = EpisodeStart(episode_id, run_id, 30.0, 60.0)
        await journal.record_started(start, "tool_loop")
        await journal.record_turn(episode_id, 0, TurnServed(await texts.pack(said * 70_000), 0.1, 1))
        ending = Ending(episode_id, run_id, Outcome.COMPLETED, await texts.pack(answer * 70_000))
        await journal.record_ended(start, ending)

    def event(self, message: Message, stream: str) -> Event:
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        return Event(stream, version, NOW, message, Cause("", "", ""))

    def pruned(self, run_id: str, *episode_ids: str) -> Event:
        told = scheduler_pb2.EpisodesPruned(run_id=run_id, episode_ids=episode_ids, keep_steps=1)
        return self.event(told, f"scheduler.retention/{run_id}")

    def removed(self, run_id: str) -> Event:
        return self.event(gateway_pb2.RunRemoved(run_id=run_id), f"gateway.run/{run_id}")

    async def tell(self, *events: Event) -> list[tuple[int, int]]:
        """Deliver; texts freed and kept, of each record that there is of the events."""
        await Inbox(self.store, "rollout").handle(events, self.texts.handle)
        found: list[tuple[int, int]] = []
        for event in events:
            told = [one.message for one in await self.store.read(f"rollout.run/{event.key}")]
            own = [one for one in told if isinstance(one, TextsFreed) and one.event_id == event.id]
            found += [(one.texts, one.kept_texts) for one in own]
        return found

    def stored(self) -> int:
        return sum(path.is_file() for path in (self.folder / "blobs").rglob("*"))


@pytest.fixture
async def rollout(tmp_path: Path) -> AsyncIterator[Rollout]:
    catalogue = Catalogue.from_modules([rollout_pb2, gateway_pb2, scheduler_pb2])
    store = EventStore.open(f"sqlite:///{tmp_path}/rollout.db", catalogue, ManualClock(NOW))
    yield Rollout(store, tmp_path)
    await store.close()


async def test_texts_of_pruned_episodes_go_and_no_others(rollout: Rollout, monkeypatch):
    monkeypatch.setattr(freeing, "PAGE", 2)
    await rollout.episode("r", "e1", "a", "b")
    await rollout.episode("r", "e2", "c", "d")
    assert await rollout.tell(rollout.pruned("r", "e1", "never-started")) == [(2, 0)]
    assert rollout.stored() == 2
    # Counted on from there.
    await rollout.episode("r", "e3", "e", "f")
    assert await rollout.tell(rollout.pruned("r", "e2", "e3")) == [(4, 0)]
    assert rollout.stored() == 0


@pytest.mark.parametrize("anew", [False, True])
async def test_a_text_that_a_kept_episode_names_stays_until_that_goes_too(rollout: Rollout, anew: bool):
    """Of the same run, of another one, and of one that is removed: the last takes it along."""
    await rollout.episode("r", "e1", "same", "")
    await rollout.episode("r", "e2", "", "same")
    await rollout.episode("other", "e3", "same", "own")
    assert await rollout.tell(rollout.pruned("r", "e1")) == [(0, 1)]
    assert await rollout.tell(rollout.removed("other")) == [(1, 1)]
    assert rollout.stored() == 1
    if anew:
        rollout.texts = RunTexts(rollout.store, rollout.blobs)
    assert await rollout.tell(rollout.pruned("r", "e2")) == [(1, 0)]
    assert rollout.stored() == 0


async def test_of_two_that_go_together_the_later_takes_the_shared_text(rollout: Rollout):
    await rollout.episode("r", "e1", "same", "")
    await rollout.episode("r", "e2", "same", "")
    assert await rollout.tell(rollout.pruned("r", "e1"), rollout.pruned("r", "e2")) == [(0, 1), (1, 0)]
    assert rollout.stored() == 0


async def test_a_removed_run_whose_episodes_were_pruned_has_the_rest_to_free(rollout: Rollout):
    await rollout.episode("r", "e1", "a", "b")
    await rollout.episode("r", "e2", "c", "d")
    assert await rollout.tell(rollout.pruned("r", "e1")) == [(2, 0)]
    assert await rollout.tell(rollout.removed("r")) == [(2, 0)]
    assert rollout.stored() == 0


async def test_a_worker_killed_between_blobs_leaves_the_rest_to_the_next(rollout: Rollout, monkeypatch):
    """The event comes again, to a process that knows nothing of the first; after that once more, for nothing."""
    await rollout.episode("r", "e1", "a", "b")
    delete, calls = rollout.blobs.delete, 0

    async def killed(uri: str) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("killed")
        return await delete(uri)

    event = rollout.pruned("r", "e1")
    with monkeypatch.context() as broken:
        broken.setattr(rollout.blobs, "delete", killed)
        with pytest.raises(OSError, match="killed"):
            await rollout.tell(event)
    assert rollout.stored() == 1
    rollout.texts = RunTexts(rollout.store, rollout.blobs)
    assert await rollout.tell(event) == await rollout.tell(event) == [(1, 0)]
    assert rollout.stored() == 0


async def test_what_a_refused_record_has_freed_is_counted_by_the_next(rollout: Rollout, monkeypatch):
    await rollout.episode("r", "e1", "a", "b")
    append, calls = rollout.store.append, 0

    async def refused_once(*given, **named):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Conflict("moved meanwhile")
        return await append(*given, **named)

    monkeypatch.setattr(rollout.store, "append", refused_once)
    assert await rollout.tell(rollout.pruned("r", "e1")) == [(2, 0)]
    assert calls == 2
