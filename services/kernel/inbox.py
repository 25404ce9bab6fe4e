"""Handles every event once and in order: what the handler writes and what it has seen are one transaction.

Refuses to run a handler past a gap in a stream.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from services.kernel.envelope import Event
from services.kernel.errors import Conflict, Transient
from services.kernel.event_store import CausedWrite, EventStore, Seen, Write

Handler = Callable[[Sequence[Event]], Awaitable[Sequence[Write]]]
"""Takes new events, in order within a stream, and returns what to append. Its own effects may happen again."""

_CONFLICTS_IN_A_ROW = 10


class Gap(Transient):
    """An event came whose predecessor is still missing."""


class Inbox:
    """One consumer's progress over all streams that it reads."""

    def __init__(self, store: EventStore, consumer: str) -> None:
        self._store = store
        self._consumer = consumer

    async def handle(self, events: Sequence[Event], handler: Handler) -> None:
        """Handle what is new among `events`. Raises Gap, and whatever the handler raises; nothing is then written."""
        for _ in range(_CONFLICTS_IN_A_ROW):
            fresh, seen = await self._sift(events)
            if not fresh:
                return
            writes = caused(await handler(fresh), fresh)
            try:
                await self._store.append(writes, seen=seen)
                return
            except Conflict:
                continue
        raise Transient(f"{self._consumer}: {_CONFLICTS_IN_A_ROW} conflicts in a row")

    async def _sift(self, events: Sequence[Event]) -> tuple[list[Event], list[Seen]]:
        at = await self._store.seen_versions(self._consumer, {event.stream for event in events})
        fresh: list[Event] = []
        for event in events:
            if event.version <= at[event.stream]:
                continue
            if event.version != at[event.stream] + 1:
                raise Gap(f"{self._consumer}: {event.id} came, {event.stream}@{at[event.stream] + 1} is missing")
            at[event.stream] = event.version
            fresh.append(event)
        return fresh, [Seen(self._consumer, name, at[name]) for name in dict.fromkeys(e.stream for e in fresh)]


def caused(writes: Sequence[Write], events: Sequence[Event]) -> list[Write]:
    """The writes with their causes, taken from the events they were decided on."""
    # Of a mixed batch, the event about the same thing is the cause; else the last one, for want of a better.
    last = {event.key: event for event in events}
    return [w if isinstance(w, CausedWrite) else _by(w, last, events[-1]) for w in writes]


def _by(write: Write, last: Mapping[str, Event], other: Event) -> CausedWrite:
    cause = last.get(write.stream.partition("/")[2], other).as_cause()
    return CausedWrite(write.stream, write.expected_version, write.messages, cause)
