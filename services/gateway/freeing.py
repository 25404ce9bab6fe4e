"""What the gateway frees: trajectories, sealed or as they were recorded elsewhere, and turns too large for an event.

They go with the episodes that the scheduler has pruned, and with removed runs; one count for both. It refuses blobs of
other services: whoever put them frees them. A blob stays while an episode that isn't gone names it; an episode that is
pruned before its seal is heard of goes with its run.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forgerl.events.v1 import gateway_pb2, scheduler_pb2
from forgerl.gateway.v1 import record_pb2
from google.protobuf.message import Message

from services.contract.references import References
from services.gateway.sessions import turns_stream
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.errors import Conflict
from services.kernel.event_store import EventStore, Write
from services.kernel.inbox import Handler

_EPISODES_AT_ONCE = 20
_EPISODES_A_RECORD = 500
_BLOBS_AT_ONCE = 8
_PAGE = 500
_ATTEMPTS = 10
_TRAJECTORIES = (gateway_pb2.EpisodeSubmitted, gateway_pb2.TrajectorySealed, record_pb2.RecordedChecked)
_TURNS = (record_pb2.TurnRecorded,)


def freed_stream(run_id: str) -> str:
    """Private stream of what was freed of a run."""
    return f"gateway.freed/{run_id}"


@dataclass(slots=True)
class _Count:
    """Events of some kinds that name blobs, counted up to `after` in the store's log.

    forgets: nothing is remembered of a removed run. Not so where a removal counts: its repeat frees what came since.
    """

    kinds: Collection[type[Message]]
    forgets: bool
    after: int = 0
    references: References = field(default_factory=References)
    # Of trajectories, by run: episodes that are sealed, or will be without a look at their turns.
    sealed: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    removed: set[str] = field(default_factory=set[str])

    async def catch_up(self, store: EventStore) -> References:
        kinds = (*self.kinds, record_pb2.EpisodesFreed, gateway_pb2.RunRemoved)
        types = sorted(kind.DESCRIPTOR.full_name for kind in kinds)
        while page := await store.notifications(self.after, _PAGE, types):
            for _, event in page:
                self._take(event)
            self.after = page[-1][0]
        return self.references

    def _take(self, event: Event) -> None:
        match event.message:
            case record_pb2.EpisodesFreed() as freed:
                # In flight while its run was removed, an episode may have named more than was freed with it.
                self.references.part(freed.run_id, freed.episode_ids, forget=bool(freed.event_id))
                if freed.run_id in self.removed:
                    self.references.drop(freed.run_id)
            case gateway_pb2.RunRemoved() as removed:
                if self.forgets:
                    self.removed.add(removed.run_id)
                    self.references.drop(removed.run_id)
                    self.sealed.pop(removed.run_id, None)
            case message:
                run_id = _run_of(message)
                if run_id in self.removed:
                    return
                self.references.name(event.key, _named(message))
                if run_id and not isinstance(message, gateway_pb2.EpisodeSubmitted):
                    self.sealed.setdefault(run_id, set()).add(event.key)


@dataclass(slots=True)
class Freed:
    """What one event, or one removal, has freed so far."""

    blobs: int = 0
    size_bytes: int = 0
    kept_blobs: int = 0


class Freeing:
    """Counts what the store names, from its first question on: a gateway that frees nothing counts nothing."""

    def __init__(self, store: EventStore, blobs: Blobs, *, forgets: bool = True) -> None:
        self._store, self._blobs = store, blobs
        self._trajectories, self._turns = _Count(_TRAJECTORIES, forgets), _Count(_TURNS, forgets)
        # By event: an attempt whose record was refused leaves the next one nothing to count.
        self._attempted: dict[str, Freed] = {}

    async def handle(self, events: Sequence[Event]) -> list[Write]:
        """Free what only pruned episodes name. Delivered again, it frees again, which is no change."""
        told = [(event, event.message) for event in events if isinstance(event.message, scheduler_pb2.EpisodesPruned)]
        if not told:
            return []
        self._attempted = {event.id: self._attempted.get(event.id, Freed()) for event, _ in told}
        records: dict[str, list[Message]] = {}
        leaving: list[str] = []
        for event, pruned in told:
            episode_ids = await self._sealed(pruned)
            freed = await self.free(episode_ids, self._attempted[event.id], leaving)
            # Of two that share a blob and go together, the later one takes it along.
            leaving += episode_ids
            record = _record(pruned.run_id, episode_ids, freed, event.id)
            records.setdefault(freed_stream(pruned.run_id), []).append(record)
        versions = await self._store.versions(records)
        return [Write(stream, versions[stream], tuple(own)) for stream, own in records.items()]

    async def free(self, episode_ids: Collection[str], freed: Freed, also: Collection[str] = ()) -> Freed:
        """Free what only these episodes name, and those that leave also; adds to `freed`."""
        freed.kept_blobs = 0
        for references in await self._counts(episode_ids):
            going, kept = references.without(episode_ids, also)
            freed.kept_blobs += len(kept)
            for first in range(0, len(going), _BLOBS_AT_ONCE):
                some = going[first : first + _BLOBS_AT_ONCE]
                for blobs, size_bytes in await asyncio.gather(*map(self._blobs.delete, some)):
                    freed.blobs, freed.size_bytes = freed.blobs + blobs, freed.size_bytes + size_bytes
        return freed

    async def unparted(self, run_id: str, episode_ids: Collection[str]) -> list[str]:
        """Those of the run of which nothing was recorded yet."""
        references = await self._trajectories.catch_up(self._store)
        return [episode_id for episode_id in episode_ids if not references.has_parted(run_id, episode_id)]

    async def _sealed(self, pruned: scheduler_pb2.EpisodesPruned) -> list[str]:
        """Those whose seal is not still to be made of their turns: its cause may be heard of after the pruning."""
        await self._trajectories.catch_up(self._store)
        sealed = self._trajectories.sealed.get(pruned.run_id, set[str]())
        return [episode_id for episode_id in pruned.episode_ids if episode_id in sealed]

    async def _counts(self, episode_ids: Collection[str]) -> list[References]:
        """Turns are read from the start only once an episode names a large one: few do, and they are most of it."""
        counts = [await self._trajectories.catch_up(self._store)]
        if self._turns.after or await self._name_turns(list(episode_ids)):
            counts.append(await self._turns.catch_up(self._store))
        return counts

    async def _name_turns(self, episode_ids: Sequence[str]) -> bool:
        for first in range(0, len(episode_ids), _EPISODES_AT_ONCE):
            streams = [turns_stream(one) for one in episode_ids[first : first + _EPISODES_AT_ONCE]]
            found = await self._store.read_many(streams)
            if any(_named(event.message) for events in found.values() for event in events):
                return True
        return False


async def free_run(store: EventStore, blobs: Blobs, run_id: str, episode_ids: Collection[str]) -> tuple[int, int]:
    """Free what only these episodes of a removed run name; blobs and bytes. A repeat frees what came since."""
    freeing = Freeing(store, blobs, forgets=False)
    freed = await freeing.free(episode_ids, Freed())
    for _ in range(_ATTEMPTS):
        ids = await freeing.unparted(run_id, episode_ids)
        parts = [ids[first : first + _EPISODES_A_RECORD] for first in range(0, len(ids), _EPISODES_A_RECORD)]
        if not parts and freed.blobs:
            parts = [[]]
        records = [_record(run_id, part, freed if number == 0 else Freed()) for number, part in enumerate(parts)]
        stream = freed_stream(run_id)
        try:
            await store.append([Write(stream, await store.version(stream), tuple(records))] if records else [])
        except Conflict:
            continue
        break
    return freed.blobs, freed.size_bytes


def with_freeing(handler: Handler, freeing: Freeing) -> Handler:
    """One handler for everything that the gateway consumes: each subscription costs a look at the broker."""

    async def handle(events: Sequence[Event]) -> Sequence[Write]:
        return [*await handler(events), *await freeing.handle(events)]

    return handle


def _record(run_id: str, episode_ids: Collection[str], freed: Freed, event_id: str = "") -> record_pb2.EpisodesFreed:
    return record_pb2.EpisodesFreed(
        run_id=run_id,
        event_id=event_id,
        episode_ids=episode_ids,
        blobs=freed.blobs,
        freed_bytes=freed.size_bytes,
        kept_blobs=freed.kept_blobs,
    )


def _run_of(message: Message) -> str:
    """The run of what ends, or may end, an episode's turns; "" of a turn, which doesn't name it."""
    match message:
        case gateway_pb2.EpisodeSubmitted() | gateway_pb2.TrajectorySealed():
            return message.run_id
        case record_pb2.RecordedChecked():
            return message.seal.run_id
        case _:
            return ""


def _named(message: Message) -> str:
    match message:
        case gateway_pb2.EpisodeSubmitted():
            return message.recorded.trajectory.uri
        case gateway_pb2.TrajectorySealed():
            return message.trajectory.uri
        case record_pb2.RecordedChecked():
            return message.seal.trajectory.uri
        case record_pb2.TurnRecorded():
            return message.tokens_blob.uri
        case _:
            return ""
