"""What happens to consumed records: inbox, retries with backoff, dead letters, parked streams.

Refuses to let one bad stream stop the others, and to lose a record: it is handled, dead-lettered, or delivered again.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from time import monotonic

from aiokafka import ConsumerRecord
from opentelemetry import trace

from services.kernel.envelope import Cause, Event, from_record, stream_and_version, type_name
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import Write
from services.kernel.inbox import Gap, Handler, Inbox, caused
from services.kernel.logs import get_logger
from services.kernel.telemetry import use_parent, whole_span
from services.kernel.topics import BrokerSettings

Record = ConsumerRecord[bytes, bytes]
Bury = Callable[[Record, Exception], Awaitable[None]]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
# After so long the batch goes back to the consumer, which must poll now and then to keep its place in the group.
_ONE_DELIVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Arrival:
    record: Record
    event: Event


class Delivery:
    """One subscription's records on their way to its handler."""

    def __init__(self, inbox: Inbox, handler: Handler, bury: Bury, settings: BrokerSettings) -> None:
        self._inbox, self._handler, self._bury, self._settings = inbox, handler, bury, settings
        self._parked: set[str] = set()
        self._failing_since_s: dict[str, float] = {}

    async def deliver(self, records: Sequence[Record]) -> None:
        """Handle or dead-letter every record; when this raises, all of them are to be delivered again."""
        arrivals = [arrival for record in records if (arrival := await self._open(record))]
        try:
            await self._inbox.handle([arrival.event for arrival in arrivals], self._traced)
            self._parked.difference_update(arrival.event.stream for arrival in arrivals)
        except Exception:
            # Some stream of the mix is bad: each by itself, oldest event first, so that only that one suffers.
            for arrival in sorted(arrivals, key=lambda arrival: arrival.event.stream):
                await self._insist(arrival)

    async def _open(self, record: Record) -> _Arrival | None:
        try:
            return _Arrival(record, from_record(record.headers, record.value or b""))
        except Permanent as error:
            await self._give_up(record, error)
            return None

    async def _insist(self, arrival: _Arrival) -> None:
        event, began_s, pause_s = arrival.event, monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                await self._inbox.handle([event], self._traced)
            except Exception as error:
                since_s = self._failing_since_s.setdefault(event.id, monotonic())
                if monotonic() - since_s + pause_s > self._patience_s(event, error):
                    self._failing_since_s.pop(event.id, None)
                    return await self._give_up(arrival.record, error)
                if monotonic() - began_s > _ONE_DELIVERY_S:
                    raise
                get_logger().warning("event.retried", event_id=event.id, error=repr(error), pause_s=pause_s)
            else:
                self._parked.discard(event.stream)
                self._failing_since_s.pop(event.id, None)
                return None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _patience_s(self, event: Event, error: Exception) -> float:
        if isinstance(error, Permanent):
            return 0.0
        if isinstance(error, Gap):
            return 0.0 if event.stream in self._parked else self._settings.gap_for_s
        known = isinstance(error, Transient | OSError)
        return self._settings.transient_for_s if known else self._settings.unknown_for_s

    async def _give_up(self, record: Record, error: Exception) -> None:
        try:
            await self._bury(record, error)
        except Exception:
            await asyncio.sleep(_LONGEST_PAUSE_S)
            raise
        with suppress(Permanent):
            # Its later events meet a gap, and follow it without delay.
            self._parked.add(stream_and_version(record.headers)[0])

    async def _traced(self, events: Sequence[Event]) -> Sequence[Write]:
        spans = [_spanned(event) for event in events]
        followed = [event for event, _ in spans]
        try:
            with use_parent(followed[0].cause.traceparent) if len(followed) == 1 else nullcontext():
                return caused(await self._handler(followed), followed)
        finally:
            for _, end in spans:
                end()


def _spanned(event: Event) -> tuple[Event, Callable[[], None]]:
    """The event below a span of its own, and what ends that."""
    facts = {"messaging.system": "kafka", "messaging.kafka.message.key": event.key, "messaging.message.id": event.id}
    name = f"{type_name(event.message).rpartition('.')[2]} consumed"
    traceparent, end = whole_span(name, facts, event.cause.traceparent, trace.SpanKind.CONSUMER)
    cause = Cause(event.cause.correlation_id, event.cause.causation_id, traceparent)
    return Event(event.stream, event.version, event.time, event.message, cause), end
