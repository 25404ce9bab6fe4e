"""The broker's topics and its incarnation; refuses to rely on topics that come into being by themselves.

The incarnation is a random id at offset 0 of a topic that never expires: an emptied broker has another, or none.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from services.kernel.errors import Transient

INCARNATION_TOPIC = "forgerl.broker.incarnation.v1"
_EXISTS = 36
_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where the broker is (host:port[,host:port]), how many copies it keeps, and how long a consumer is patient."""

    url: str
    replication: int = 1
    # An event whose handling fails transiently blocks its partition for so long, then it is dead-lettered.
    transient_for_s: float = 900.0
    # The same for errors that nobody classified.
    unknown_for_s: float = 5.0
    # The same for an event whose predecessor is missing.
    gap_for_s: float = 2.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to be made. Retention in ms; -1: for ever."""

    name: str
    partitions: int = 3
    retention_ms: int = -1

    def topic(self, copies: int) -> NewTopic:
        """As the admin client wants it."""
        return NewTopic(self.name, self.partitions, copies, topic_configs={"retention.ms": str(self.retention_ms)})


async def ensure_topics(settings: BrokerSettings, plans: Iterable[TopicPlan]) -> None:
    """Make the topics that aren't there. Raises Transient."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.url, request_timeout_ms=int(_ANSWER_S * 1000))
    try:
        await admin.start()
        wanted = [plan.topic(settings.replication) for plan in plans]
        answer: Any = await admin.create_topics(wanted, timeout_ms=int(_ANSWER_S * 1000)) if wanted else None
        for name, code, *_ in answer.topic_errors if answer else ():
            if code not in (0, _EXISTS):
                raise Transient(f"topic {name}: {for_code(code).__name__}")
    except (KafkaError, OSError) as error:
        raise Transient(f"broker at {settings.url}: {error!r}") from error
    finally:
        await admin.close()


class Incarnation:
    """Reads, and the first time writes, the broker's incarnation."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._at = TopicPartition(INCARNATION_TOPIC, 0)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.url, enable_auto_commit=False, auto_offset_reset="earliest",
            request_timeout_ms=int(_ANSWER_S * 1000), fetch_max_wait_ms=50,
        )  # fmt: skip

    async def start(self) -> None:
        """Connect. Raises KafkaError."""
        await self._consumer.start()
        self._consumer.assign([self._at])

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def read(self) -> str:
        """The incarnation; empty when there is none. Raises Transient when the broker doesn't answer."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if not (await self._consumer.end_offsets([self._at]))[self._at]:
                    return ""
                self._consumer.seek(self._at, 0)
                self._consumer.resume(self._at)
                record = await self._consumer.getone()
                # Or it would go on asking for a second record, twenty times a second.
                self._consumer.pause(self._at)
        except (TimeoutError, KafkaError) as error:
            raise Transient(f"no answer about the broker's incarnation: {error!r}") from error
        return bytes(record.value or b"").decode() if record.offset == 0 else ""

    async def read_or_write(self, producer: AIOKafkaProducer) -> str:
        """The incarnation, made up now if there was none; of several that are written at once the first counts."""
        if not await self.read():
            await producer.send_and_wait(INCARNATION_TOPIC, secrets.token_hex(8).encode(), partition=0)
        if incarnation := await self.read():
            return incarnation
        raise Transient("the broker's incarnation can't be read back")
