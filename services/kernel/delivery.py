"""What happens to consumed records: inbox, retries with backoff, dead letters, parked streams.

Refuses to let one bad stream stop the others, and to lose a record: it is handled, dead-lettered, or delivered again.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from aiokafka import ConsumerRecord
from opentelemetry import trace

from services.kernel.envelope import Event, from_record, stream_and_version, type_name
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import Write
from services.kernel.inbox import Gap, Handler, Inbox, caused
from services.kernel.logs import get_logger
from services.kernel.telemetry import parent_context, use_parent
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
        self._tracer = trace.get_tracer("forgerl.kernel")
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
        with ExitStack() as stack:
            followed = [self._span(stack, event) for event in events]
            if len(followed) == 1:
                stack.enter_context(use_parent(followed[0].cause.traceparent))
            return caused(await self._handler(followed), followed)

    def _span(self, stack: ExitStack, event: Event) -> Event:
        facts: dict[str, Any] = {"messaging.system": "kafka", "messaging.kafka.message.key": event.key,
                                 "messaging.message.id": event.id}  # fmt: skip
        name = f"{type_name(event.message).rpartition('.')[2]} consumed"
        span = self._tracer.start_span(name, parent_context(event.cause.traceparent), trace.SpanKind.CONSUMER, facts)
        stack.callback(span.end)
        own = span.get_span_context()
        traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}" if own.is_valid else ""
        return replace(event, cause=replace(event.cause, traceparent=traceparent or event.cause.traceparent))
