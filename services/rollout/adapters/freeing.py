"""What rollout frees: answers, and what tools said, above 64 KiB.

They go with the episodes that the scheduler has pruned, and with removed runs; one count for both. A text stays while
an episode that isn't gone names it. It refuses what no event names: a text that a killed worker had put and not
written down yet stays in the store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forgerl.events.v1.gateway_pb2 import RunRemoved
from forgerl.events.v1.rollout_pb2 import EpisodeFinished, EpisodeStarted
from forgerl.events.v1.scheduler_pb2 import EpisodesPruned
from forgerl.rollout.v1.journal_pb2 import TextsFreed, ToolsAnswered

from services.contract.references import References
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.logs import get_logger

PAGE = 500
_KINDS = (EpisodeStarted, EpisodeFinished, ToolsAnswered, TextsFreed)


def freed_stream(run_id: str) -> str:
    """Private stream of what was freed of a run."""
    return f"rollout.run/{run_id}"


@dataclass(slots=True)
class _Count:
    """What the store's log names up to `after`, and which episodes are of which run."""

    after: int = 0
    references: References = field(default_factory=References)
    episodes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    removed: set[str] = field(default_factory=set[str])

    async def catch_up(self, store: EventStore) -> None:
        types = [kind.DESCRIPTOR.full_name for kind in _KINDS]
        while page := await store.notifications(self.after, PAGE, types):
            for _, event in page:
                self._take(event)
            self.after = page[-1][0]

    def _take(self, event: Event) -> None:
        match event.message:
            case EpisodeStarted() as started:
                self._belongs(event.key, started.run_id)
            case EpisodeFinished() as finished:
                self._belongs(event.key, finished.run_id)
                self.references.name(event.key, finished.answer_blob.uri)
            case ToolsAnswered() as answered:
                self.references.name(event.key, answered.messages.uri)
            case TextsFreed() as freed if freed.pruned:
                self.references.part(freed.run_id, freed.episode_ids, forget=True)
            case TextsFreed() as freed:
                self.removed.add(freed.run_id)
                self.references.part(freed.run_id, self.episodes.get(freed.run_id, ()))
            case _:
                pass

    def _belongs(self, episode_id: str, run_id: str) -> None:
        self.episodes.setdefault(run_id, set()).add(episode_id)
        if run_id in self.removed:
            self.references.part(run_id, [episode_id])


@dataclass(frozen=True, slots=True)
class RunTexts:
    """Counts what the store names, from its first question on: a worker that frees nothing counts nothing."""

    store: EventStore
    blobs: Blobs
    _count: _Count = field(default_factory=_Count)
    # By event: an attempt whose record was refused leaves the next one nothing to count.
    _attempted: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """Free what only removed runs and pruned episodes name. Delivered again, it frees again: that is no change."""
        told = [(event, event.message) for event in events if isinstance(event.message, RunRemoved | EpisodesPruned)]
        if not told:
            return ()
        await self._count.catch_up(self.store)
        for event_id in set(self._attempted).difference(event.id for event, _ in told):
            del self._attempted[event_id]
        records: dict[str, list[TextsFreed]] = {}
        leaving: list[str] = []
        for event, message in told:
            episode_ids = self._episodes_of(message)
            record = await self._free(event.id, message, episode_ids, leaving)
            # Of two that share a text and go together, the later one takes it along.
            leaving += episode_ids
            records.setdefault(freed_stream(message.run_id), []).append(record)
        versions = await self.store.versions(records)
        return [Write(stream, versions[stream], tuple(own)) for stream, own in records.items()]

    def _episodes_of(self, message: RunRemoved | EpisodesPruned) -> list[str]:
        if isinstance(message, EpisodesPruned):
            return self._count.references.naming(message.episode_ids)
        return sorted(self._count.episodes.get(message.run_id, ()))

    async def _free(
        self, event_id: str, told: RunRemoved | EpisodesPruned, episode_ids: Collection[str], also: Collection[str]
    ) -> TextsFreed:
        free, kept = self._count.references.without(episode_ids, also)
        for uri in free:
            freed = await self.blobs.delete(uri)
            before = self._attempted.get(event_id, (0, 0))
            self._attempted[event_id] = before[0] + freed[0], before[1] + freed[1]
        count, size_bytes = self._attempted.get(event_id, (0, 0))
        get_logger().info("texts.freed", run_id=told.run_id, texts=count, size_bytes=size_bytes, kept_texts=len(kept))
        pruned = isinstance(told, EpisodesPruned)
        return TextsFreed(
            run_id=told.run_id,
            event_id=event_id,
            texts=count,
            freed_bytes=size_bytes,
            kept_texts=len(kept),
            pruned=pruned,
            episode_ids=episode_ids if pruned else (),
        )
