"""Long texts that go with a run: answers, and what tools said, above 64 KiB.

A text that an episode of another run names stays until that run is removed, too: blobs are named by their content. It
refuses what no event names: a text that a killed worker had put and not written down yet stays in the store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forgerl.events.v1.rollout_pb2 import EpisodeFinished, EpisodeStarted
from forgerl.rollout.v1.journal_pb2 import TextsFreed, ToolsAnswered

from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.logs import get_logger

PAGE = 500
_RUNS = "rollout.run/"


@dataclass(slots=True)
class _Named:
    """Uris by what becomes of the episodes that name them."""

    removed: set[str]
    freed_before: set[str]
    run_of: dict[str, str] = field(default_factory=dict[str, str])
    texts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    kept: set[str] = field(default_factory=set[str])

    def take(self, event: Event) -> None:
        message, uri = event.message, ""
        match message:
            case EpisodeStarted():
                self._note(event.key, message.run_id)
            case EpisodeFinished():
                self._note(event.key, message.run_id)
                uri = message.answer_blob.uri
            case ToolsAnswered():
                uri = message.messages.uri
            case _:
                pass
        if not uri:
            return
        run_id = self.run_of.get(event.key, "")
        if run_id in self.removed:
            self.texts.setdefault(run_id, set()).add(uri)
        elif not run_id:
            self.kept.add(uri)

    def _note(self, episode_id: str, run_id: str) -> None:
        if run_id in self.removed or run_id in self.freed_before:
            self.run_of[episode_id] = run_id


@dataclass(frozen=True, slots=True)
class RunTexts:
    """The long texts of whole runs."""

    store: EventStore
    blobs: Blobs

    async def free(self, run_ids: Collection[str]) -> Sequence[Write]:
        """Free what only removed runs name; the records of it. May be repeated: then it frees what came since."""
        before = {name.removeprefix(_RUNS) for name in await self.store.streams(_RUNS)}
        named = _Named(set(run_ids), before - set(run_ids))
        kinds, after = (EpisodeStarted, EpisodeFinished, ToolsAnswered), 0
        types = [kind.DESCRIPTOR.full_name for kind in kinds]
        while page := await self.store.notifications(after, PAGE, types):
            after = page[-1][0]
            for _, event in page:
                named.take(event)
        writes: list[Write] = []
        for run_id in sorted(run_ids):
            count, size = 0, 0
            for uri in sorted(named.texts.get(run_id, set()) - named.kept):
                freed = await self.blobs.delete(uri)
                count, size = count + freed[0], size + freed[1]
            get_logger().info("texts.freed", run_id=run_id, texts=count, size_bytes=size)
            if run_id not in before:
                record = TextsFreed(run_id=run_id, texts=count, freed_bytes=size)
                writes.append(Write(f"{_RUNS}{run_id}", 0, (record,)))
        return writes
