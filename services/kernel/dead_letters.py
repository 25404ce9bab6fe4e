"""Records that a consumer could not handle: kept on `<topic>.dlq.<consumer>`, listed, and replayed into their topic.

Refuses to change a record: a replayed one is the original, byte for byte.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from services.kernel.errors import Transient
from services.kernel.logs import get_logger
from services.kernel.topics import BrokerSettings, TopicPlan, ensure_topics

_MARK = ".dlq."
_ERROR, _BURIED_AT = "forgerl_error", "forgerl_buried_at"
_GROUP = "forgerl-dlq-replay"
_Record = ConsumerRecord[bytes, bytes]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that waits for its replay."""

    topic: str
    consumer: str
    event_id: str
    error: str
    buried_at: str


async def bury(
    settings: BrokerSettings, producer: AIOKafkaProducer, consumer: str, record: _Record, error: Exception
) -> None:
    """Keep a record, with its original headers and the error. Raises Transient."""
    topic = f"{record.topic}{_MARK}{consumer}"
    extra = [(_ERROR, repr(error).encode()[:2000]), (_BURIED_AT, datetime.now(UTC).isoformat().encode())]
    await ensure_topics(settings, [TopicPlan(topic, partitions=1)])
    try:
        await producer.send_and_wait(topic, record.value, key=record.key, headers=[*record.headers, *extra])
    except KafkaError as failure:
        raise Transient(f"dead letter to {topic}: {failure!r}") from failure
    get_logger().error("event.dead_lettered", topic=topic, event_id=_header(record, "ce_id"), error=repr(error))


async def list_dead(settings: BrokerSettings, consumer: str = "") -> list[DeadLetter]:
    """What waits for its replay, of one consumer or all."""
    async with _reading(settings, consumer) as (_, records):
        return [_letter(record) for record in records]


async def replay(settings: BrokerSettings, consumer: str = "") -> int:
    """Publish what waits into its topic again, in order; returns how many. Other consumers know it already."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.url, acks="all")
    try:
        await producer.start()
        async with _reading(settings, consumer) as (reader, records):
            for record in records:
                headers = [pair for pair in record.headers if pair[0] not in (_ERROR, _BURIED_AT)]
                topic = record.topic.split(_MARK, 1)[0]
                await producer.send_and_wait(topic, record.value, key=record.key, headers=headers)
                await reader.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
            return len(records)
    finally:
        await producer.stop()


@asynccontextmanager
async def _reading(settings: BrokerSettings, consumer: str) -> AsyncGenerator[tuple[AIOKafkaConsumer, list[_Record]]]:
    reader = AIOKafkaConsumer(bootstrap_servers=settings.url, group_id=_GROUP, enable_auto_commit=False)
    try:
        await reader.start()
        wanted = f"{_MARK}{consumer}"
        names = [name for name in await reader.topics() if name.endswith(wanted) or (not consumer and _MARK in name)]
        places = [TopicPartition(name, 0) for name in sorted(names)]
        records: list[_Record] = []
        if places:
            reader.assign(places)
            ends = await reader.end_offsets(places)
            for place in places:
                at = await reader.committed(place) or 0
                reader.seek(place, at)
                while at < ends[place]:
                    async with asyncio.timeout(30.0):
                        records.append(record := await reader.getone(place))
                    at = record.offset + 1
        yield reader, records
    finally:
        await reader.stop()


def _letter(record: _Record) -> DeadLetter:
    topic, _, consumer = record.topic.partition(_MARK)
    return DeadLetter(topic, consumer, *(_header(record, name) for name in ("ce_id", _ERROR, _BURIED_AT)))


def _header(record: _Record, name: str) -> str:
    return next((value.decode("utf-8", "replace") for key, value in record.headers if key == name), "")
