"""Consuming and signalling over Kafka, with the same manners everywhere: earliest, ack after success, no guessing.

Refuses auto-created topics, decoded bodies, and to end because the broker is away.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from faststream.kafka import KafkaBroker
from faststream.middlewares import AckPolicy
from google.protobuf.message import Message

from services.kernel.catalogue import Catalogue
from services.kernel.dead_letters import bury
from services.kernel.delivery import Delivery, Record
from services.kernel.envelope import Cause, Event, from_record, to_headers, type_name
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import EventStore
from services.kernel.inbox import Handler, Inbox
from services.kernel.logs import get_logger
from services.kernel.telemetry import current_traceparent
from services.kernel.topics import BrokerSettings, TopicPlan, ensure_topics

_SIGNAL_RETENTION_MS, _SIGNAL_S, _INTERRUPTED_S, _AWAY_S = 600_000, 2.0, 2.0, 0.5
# After a batch that wasn't full, in times of what it took to handle; what came alone is handled at once.
_RESTS, _LONGEST_REST_S = 3.0, 0.25
# Tansu looks for new records only so often within a fetch's wait: longer is later, shorter is busier.
_CONSUMER: dict[str, Any] = {
    "batch": True, "no_reply": True, "fetch_max_wait_ms": 100, "max_partition_fetch_bytes": 16 * 1024 * 1024,
    "session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000,
}  # fmt: skip


class _Consumer(AIOKafkaConsumer):
    """Answers only when it has records: FastStream would sleep after every empty answer, and 5 s after an error.

    On a busy machine it lets records gather: a batch costs as much as ten or twenty of them, here and at the broker.
    """

    _answered_s, _full = 0.0, True

    async def getmany(self, *partitions: Any, timeout_ms: int = 0, max_records: int | None = None) -> Any:
        rest_s = 0.0 if self._full else min(_RESTS * (monotonic() - self._answered_s), _LONGEST_REST_S)
        await asyncio.sleep(rest_s)
        while True:
            try:
                if records := await super().getmany(*partitions, timeout_ms=60_000, max_records=max_records):
                    self._answered_s, self._full = monotonic(), sum(map(len, records.values())) == max_records
                    return records
            except KafkaError as error:
                get_logger().warning("consumer.interrupted", error=repr(error))
                await asyncio.sleep(_INTERRUPTED_S)


async def _parse(records: Any, original: Callable[[Any], Awaitable[Any]]) -> Any:
    # FastStream's parser dies of a header that isn't UTF-8, before anything could dead-letter the record.
    message = await original((replace(records[0], headers=()),))
    message.raw_message = records
    return message


async def _keep_raw(message: Any) -> Any:
    return message.raw_message


class Broker:
    """A part: every subscription of one process, and its signals."""

    def __init__(self, settings: BrokerSettings, catalogue: Catalogue, store: EventStore | None = None) -> None:
        self._settings, self._catalogue, self._store = settings, catalogue, store
        self._app = KafkaBroker(
            settings.url, ack_policy=AckPolicy.NACK_ON_ERROR, apply_types=False, parser=_parse, decoder=_keep_raw,
            consumer_only=True, allow_auto_create_topics=False, logger=None, metadata_max_age_ms=1_000,
        )  # fmt: skip
        self._producer: AIOKafkaProducer | None = None
        self._connecting, self._signals = asyncio.Lock(), 0
        self._groups: list[str] = []
        self._ready = asyncio.Event()

    def subscribe(self, topics: Sequence[str], *, service: str, handler: Handler, max_batch: int = 100) -> None:
        """Handle every event of `topics` once, in order within a stream. Call before `run`."""
        if self._store is None:
            raise Permanent("a subscription needs an event store for its inbox")
        self._groups.append(service)
        group = service if self._groups.count(service) == 1 else f"{service}-{self._groups.count(service)}"
        delivery = Delivery(Inbox(self._store, group), handler, partial(self._bury, group), self._settings)
        given: dict[str, Any] = {"group_id": group, "max_records": max_batch, **_CONSUMER}
        self._app.subscriber(*topics, auto_offset_reset="earliest", **given)(delivery.deliver)

    def listen(self, topic: str, callback: Callable[[Event], Awaitable[None]]) -> None:
        """Hear the signals of a lossy topic from now on; a callback that fails loses that signal. Call before `run`."""

        async def hear(records: Sequence[Record]) -> None:
            for record in records:
                try:
                    await callback(from_record(record.headers, record.value or b""))
                except Exception as error:
                    get_logger().warning("signal.lost", topic=topic, error=repr(error))

        self._app.subscriber(topic, auto_offset_reset="latest", ack_policy=AckPolicy.ACK_FIRST, **_CONSUMER)(hear)

    async def signal(self, message: Message) -> None:
        """Publish to a lossy topic, or lose it when the broker is away."""
        topic = self._catalogue.topic_of(type_name(message))
        if topic is None or not self._catalogue.is_lossy(topic):
            raise Permanent(f"{type_name(message)} is not a signal")
        self._signals += 1
        cause = Cause("", "", current_traceparent())
        event = Event(self._catalogue.stream_of(message), self._signals, datetime.now(UTC), message, cause)
        value, headers = message.SerializeToString(), to_headers(event)
        try:
            async with asyncio.timeout(_SIGNAL_S):
                producer = await self._connected()
                await producer.send_and_wait(topic, value, key=event.key.encode(), headers=headers)
        except (KafkaError, TimeoutError):
            with contextlib.suppress(Transient):
                await self._make_lossy_topics()

    async def ready(self) -> None:
        """Wait until everything is subscribed."""
        await self._ready.wait()

    async def run(self) -> None:
        """Consume until cancelled; wait for the broker as long as it takes."""
        try:
            while not self._ready.is_set():
                try:
                    await self._start()
                except (KafkaError, Transient, OSError) as error:
                    get_logger().warning("broker.awaited", url=self._settings.url, error=str(error))
                    await self._app.stop()
                    await asyncio.sleep(_AWAY_S)
            await asyncio.Event().wait()
        finally:
            await self._app.stop()
            if self._producer is not None:
                await self._producer.stop()

    async def _start(self) -> None:
        await self._make_lossy_topics()
        await self._app.connect()
        config: Any = self._app.config.broker_config
        config.builder = partial(_Consumer, **config.builder.keywords)
        await self._app.start()
        self._ready.set()

    async def _make_lossy_topics(self) -> None:
        lossy = [topic.name for topic in self._catalogue.topics() if topic.lossy]
        await ensure_topics(self._settings, [TopicPlan(name, 1, _SIGNAL_RETENTION_MS) for name in lossy])

    async def _connected(self) -> AIOKafkaProducer:
        async with self._connecting:
            if self._producer is None:
                producer = AIOKafkaProducer(bootstrap_servers=self._settings.url, acks="all", metadata_max_age_ms=5_000)
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    async def _bury(self, consumer: str, record: Record, error: Exception) -> None:
        await bury(self._settings, await self._connected(), consumer, record, error)
