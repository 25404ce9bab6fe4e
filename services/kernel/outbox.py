"""The relay: publishes what the store holds, in order, from a cursor that belongs to one incarnation of the broker.

Refuses to go on after a failure: it stops, and begins again at the cursor. Consumers recognise what comes twice.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import contextlib
from collections.abc import Sequence
from time import monotonic

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Event, to_headers, type_name
from services.kernel.errors import Transient
from services.kernel.event_store import EventStore, Seen
from services.kernel.logs import get_logger
from services.kernel.topics import INCARNATION_TOPIC, BrokerSettings, Incarnation, TopicPlan, ensure_topics

_LOOK_AGAIN_S = 0.5
_CHECK_S = 1.0
_BATCH_EVENTS = 200
_ACK_S = 10.0
# As large as a batch of ours can be, so that one partition's share of it is one produce request: all of it or nothing.
_REQUEST_BYTES = 16 * 1024 * 1024


class Relay:
    """A part. Of all processes that share a store one relays, by lease; the others stand by."""

    def __init__(self, store: EventStore, settings: BrokerSettings, catalogue: Catalogue, service: str) -> None:
        self._store, self._settings, self._catalogue = store, settings, catalogue
        # Only the owner makes its topics, and only once it knows the incarnation: so nothing of a store can reach an
        # emptied broker before the relay has noticed.
        own = [topic for topic in catalogue.topics() if topic.noun.startswith(f"{service}.") and not topic.lossy]
        self._own = [TopicPlan(topic.name) for topic in own]
        self._types = [name for topic in own for name in topic.type_names]
        self._lease = store.lease("relay")
        self._wake = store.subscribe()
        self._ends: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Relay until cancelled."""
        try:
            while True:
                if await asyncio.to_thread(self._lease.held):
                    try:
                        await self._relay()
                    except (KafkaError, Transient, OSError, TimeoutError) as error:
                        get_logger().warning("relay.interrupted", error=str(error) or repr(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
        finally:
            self._lease.release()

    async def _relay(self) -> None:
        await ensure_topics(self._settings, [TopicPlan(INCARNATION_TOPIC, partitions=1)])
        producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.url, acks="all", request_timeout_ms=int(_ACK_S * 1000),
            max_batch_size=_REQUEST_BYTES, max_request_size=_REQUEST_BYTES, metadata_max_age_ms=5_000,
        )  # fmt: skip
        incarnation = Incarnation(self._settings)
        self._ends.clear()
        try:
            await producer.start()
            await incarnation.start()
            name = await incarnation.read_or_write(producer)
            await ensure_topics(self._settings, self._own)
            get_logger().info("relay.began", incarnation=name)
            await self._follow(producer, incarnation, name)
        finally:
            for closing in (incarnation.stop(), producer.stop()):
                with contextlib.suppress(TimeoutError, KafkaError):
                    await asyncio.wait_for(closing, timeout=_ACK_S)

    async def _follow(self, producer: AIOKafkaProducer, incarnation: Incarnation, name: str) -> None:
        cursor, checked_s = await self._store.seen_version("relay", name), monotonic()
        while await asyncio.to_thread(self._lease.held):
            self._wake.clear()
            batch = await self._store.notifications(cursor, _BATCH_EVENTS, self._types)
            if batch:
                async with asyncio.timeout(_ACK_S):
                    await self._send(producer, [event for _, event in batch])
                cursor = batch[-1][0]
                await self._store.append([], seen=[Seen("relay", name, cursor)])
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), timeout=_LOOK_AGAIN_S)
            if monotonic() - checked_s >= _CHECK_S:
                if await incarnation.read() != name:
                    raise Transient("the broker was emptied")
                checked_s = monotonic()

    async def _send(self, producer: AIOKafkaProducer, events: Sequence[Event]) -> None:
        sent = [
            await producer.send(
                topic, event.message.SerializeToString(deterministic=True), key=event.key.encode(),
                headers=to_headers(event), timestamp_ms=int(event.time.timestamp() * 1000),
            )
            for event in events
            if (topic := self._catalogue.topic_of(type_name(event.message)))
        ]  # fmt: skip
        for record in await asyncio.gather(*sent):
            place: tuple[str, int] = (record.topic, record.partition)
            if record.offset <= self._ends.get(place, -1):
                raise Transient(f"offsets of {record.topic} went backwards: the broker was emptied")
            self._ends[place] = record.offset
