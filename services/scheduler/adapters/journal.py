"""The recorded queues in the service's event store, stream `scheduler.queue/<run_id>`."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from forgerl.events.v1.scheduler_pb2 import EpisodeAdmitted, EpisodeRevoked
from forgerl.scheduler.v1.queue_pb2 import QueueAdvanced

from services.kernel.errors import Permanent
from services.kernel.event_store import EventStore, Write
from services.scheduler.adapters.records import from_record, to_record
from services.scheduler.ports import Entry

_PREFIX = "scheduler.queue/"
_TOLD_PREFIX = "scheduler.admission/"


class StoredJournal:
    """Journal on an event store."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._appended = store.subscribe()

    async def run_ids(self) -> list[str]:
        return [name.removeprefix(_PREFIX) for name in await self._store.streams(_PREFIX)]

    async def read(self, run_id: str, after: int, limit: int | None = None) -> list[Entry]:
        entries: list[Entry] = []
        for event in await self._store.read(_PREFIX + run_id, after=after, limit=limit):
            if not isinstance(event.message, QueueAdvanced):
                raise Permanent(f"{event.id} is no queue record")
            entries.append(from_record(event.message))
        return entries

    async def run_of(self, episode_id: str) -> str | None:
        for event in await self._store.read(_TOLD_PREFIX + episode_id, limit=1):
            if isinstance(event.message, EpisodeAdmitted | EpisodeRevoked):
                return event.message.run_id
        return None

    def write(self, run_id: str, expected_version: int, entries: Sequence[Entry]) -> Write:
        return Write(_PREFIX + run_id, expected_version, tuple(to_record(entry) for entry in entries))

    async def commit(self, writes: Sequence[Write]) -> None:
        await self._store.append(writes)

    async def appended(self, timeout_s: float) -> None:
        self._appended.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._appended.wait(), timeout_s)
