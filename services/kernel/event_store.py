"""The truth of one service: streams of events, and what its consumers have seen, in one transaction.

Refuses gaps and overwrites: an append either extends every stream from the version it was decided on, or nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from eventsourcing.persistence import IntegrityError, PersistenceError, StoredEvent, Tracking
from google.protobuf.message import Message

from services.kernel.catalogue import Catalogue
from services.kernel.clock import Clock
from services.kernel.envelope import Cause, Event, from_state, to_state, type_name
from services.kernel.errors import Conflict, InvalidInput, Permanent, Transient
from services.kernel.recorders import Lease, PostgresRecorder, SqliteRecorder, open_postgres, open_sqlite
from services.kernel.telemetry import current_traceparent

T = TypeVar("T")
_THREADS_POSTGRES = 4


@dataclass(frozen=True, slots=True)
class Write:
    """Events to append to a stream whose last version is `expected_version` (0: the stream is new)."""

    stream: str
    expected_version: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class CausedWrite(Write):
    """A write with a cause of its own."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Seen:
    """A consumer's progress: every version of the stream up to this one is handled."""

    consumer: str
    stream: str
    version: int


class EventStore:
    """All streams of one service. Several processes may share it."""

    def __init__(self, recorder: SqliteRecorder | PostgresRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        # One thread for SQLite: its writers exclude each other anyhow, and one connection never finds itself locked.
        threads = _THREADS_POSTGRES if isinstance(recorder, PostgresRecorder) else 1
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="event-store")
        self._subscribers: list[asyncio.Event] = []

    @classmethod
    def open(cls, url: str, catalogue: Catalogue, clock: Clock, *, durability: str = "process") -> "EventStore":
        """Open `sqlite:///FILE` or `postgresql://…`, creating what is missing. Raises InvalidInput, Transient."""
        del catalogue  # Its modules must be imported before a stream is read; asking for it makes sure of that.
        try:
            if url.startswith("sqlite:///"):
                return cls(open_sqlite(Path(url.removeprefix("sqlite:///")), durable=durability == "power"), clock)
            if url.startswith(("postgresql://", "postgres://")):
                return cls(open_postgres(url), clock)
        except Exception as error:
            raise (error if isinstance(error, InvalidInput) else Transient(f"event store: {error}")) from error
        raise InvalidInput("store_url", url, "sqlite:///FILE or postgresql://user:password@host/database")

    async def append(
        self, writes: Sequence[Write], *, cause: Cause | None = None, seen: Sequence[Seen] = ()
    ) -> list[Event]:
        """Append all writes and record all progress, or nothing.

        Raises Conflict when a stream or a consumer's progress has moved; what was decided is then to be decided anew.
        """
        events = self._stamp(writes, cause)
        trackings = [Tracking(f"{item.consumer}|{item.stream}", item.version) for item in seen]
        if events or trackings:
            await self._call(partial(self._append, writes, events, trackings))
        for subscriber in self._subscribers if events else ():
            subscriber.set()
        return events

    def _stamp(self, writes: Sequence[Write], cause: Cause | None) -> list[Event]:
        now = self._clock.now()
        if len({write.stream for write in writes}) != len(writes):
            raise Permanent("a stream stands in two writes of one append")
        events: list[Event] = []
        for write in writes:
            own = write.cause if isinstance(write, CausedWrite) else cause
            root = own or Cause(f"{write.stream}@{write.expected_version + 1}", "", current_traceparent())
            for version, message in enumerate(write.messages, write.expected_version + 1):
                events.append(Event(write.stream, version, now, message, root))
        return events

    def _append(self, writes: Sequence[Write], events: Sequence[Event], trackings: Sequence[Tracking]) -> None:
        # Rows are never deleted, so a predecessor that is seen now is still there when the insert commits: without a
        # gap before it, and the primary key against a rival, the insert itself needs no further check.
        reached = self._recorder.versions([write.stream for write in writes if write.expected_version])
        if behind := [write for write in writes if write.expected_version > reached.get(write.stream, 0)]:
            raise Conflict(f"{behind[0].stream} has not reached version {behind[0].expected_version}")
        stored = [StoredEvent(e.stream, e.version, type_name(e.message), to_state(e)) for e in events]
        try:
            self._recorder.insert_events(stored, trackings=trackings)
        except IntegrityError:
            # Ambiguous: a rival's success, or our own of which the answer was lost.
            if not self._is_ours(stored, trackings):
                names = sorted({write.stream for write in writes} | {t.application_name for t in trackings})
                raise Conflict(f"moved meanwhile: {', '.join(names)}") from None

    def _is_ours(self, stored: Sequence[StoredEvent], trackings: Sequence[Tracking]) -> bool:
        return bool(stored) and all(
            list(self._rows(str(event.originator_id), event.originator_version - 1, 1)) == [event] for event in stored
        )

    def _rows(self, stream: str, after: int, limit: int | None) -> Sequence[StoredEvent]:
        return self._recorder.select_events(stream, gt=after, limit=limit)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Events of a stream with versions above `after`, in order."""
        rows = await self._call(partial(self._rows, stream, after, limit))
        return [from_state(stream, row.originator_version, row.topic, row.state) for row in rows]

    async def read_many(self, streams: Iterable[str]) -> dict[str, list[Event]]:
        """All events of several streams, in order."""
        found: dict[str, list[Event]] = {stream: [] for stream in streams}
        for r in await self._call(partial(self._recorder.select_many, list(found))):
            found[str(r.originator_id)].append(from_state(str(r.originator_id), r.originator_version, r.topic, r.state))
        return found

    async def version(self, stream: str) -> int:
        """Version of a stream's last event; 0 when there is none."""
        return (await self.versions([stream]))[stream]

    async def versions(self, streams: Iterable[str]) -> dict[str, int]:
        """The same for many streams at once."""
        return await self._call(partial(self._recorder.versions, list(streams)))

    async def streams(self, prefix: str) -> list[str]:
        """Names of the streams that begin with `prefix`, sorted."""
        return await self._call(partial(self._recorder.select_streams, prefix))

    async def seen_version(self, consumer: str, stream: str) -> int:
        """How far a consumer has handled a stream; 0: not begun."""
        return (await self.seen_versions(consumer, [stream]))[stream]

    async def seen_versions(self, consumer: str, streams: Iterable[str]) -> dict[str, int]:
        """The same for many streams at once."""
        names = {f"{consumer}|{stream}": stream for stream in streams}
        seen = await self._call(partial(self._recorder.seen, list(names)))
        return {stream: seen[name] for name, stream in names.items()}

    async def notifications(self, after: int, limit: int, types: Sequence[str] = ()) -> list[tuple[int, Event]]:
        """Events (of some types only) in the order of their commits, with their growing, not contiguous numbers."""
        ask = partial(self._recorder.select_notifications, topics=types, inclusive_of_start=False)
        rows = await self._call(partial(ask, after, limit))
        return [(r.id, from_state(str(r.originator_id), r.originator_version, r.topic, r.state)) for r in rows]

    def subscribe(self) -> asyncio.Event:
        """A flag that every later append of this process sets."""
        flag = asyncio.Event()
        self._subscribers.append(flag)
        return flag

    def lease(self, name: str) -> Lease:
        """A right that one process at a time holds among all that share this store."""
        return self._recorder.lease(name)

    async def close(self) -> None:
        """Wait for what is under way and disconnect."""
        await asyncio.to_thread(self._threads.shutdown)
        self._recorder.datastore.close()

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            # Shielded: a cancelled call may still commit, and its thread must not be interrupted half-way.
            return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, work))
        except PersistenceError as error:
            raise Transient(f"event store: {error}") from error
