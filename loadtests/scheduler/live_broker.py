"""The scheduler's whole bootstrap on a real broker, driven with recorded durations, to be held against the simulation.

All that a process is made of runs: its RPC server, relay, timer, subscription, inbox, SQLite store and blobs. Inputs
come to it over Kafka's protocol, and the world hears its answers there. Only the clock is set. Inputs of one moment go
one topic after the other, each once the one before is committed: topics keep no order among themselves, and the
simulator has one. Topics have one partition here for the same reason.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import groupby
from pathlib import Path
from typing import cast

import stamina
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from loadtests.pipeline.stack import Program, free_port
from loadtests.scheduler.live import Step, recorded_steps
from loadtests.scheduler.world import RUN, Recording, World
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import every
from services.kernel.envelope import Event, from_record, to_headers, type_name
from services.kernel.errors import Transient
from services.kernel.event_store import EventStore
from services.kernel.topics import BrokerSettings, TopicPlan, ensure_topics
from services.scheduler.bootstrap import EVENT_MODULES, build
from services.scheduler.entrypoints.consumer import TOPICS
from services.scheduler.entrypoints.timer import Timer
from services.scheduler.settings import Settings

OUTPUTS = ("forgerl.scheduler.admission.v1", "forgerl.scheduler.batch.v1")
PATIENCE_S = 60.0
_LOOK_S = 0.002


class LiveOnBroker(World):
    """The scheduler's parts, a producer for all that it reads, and a consumer of all that it publishes."""

    def __init__(self, folder: Path, recorded: Recording, kafka_url: str) -> None:
        super().__init__(recorded, Catalogue.from_modules(EVENT_MODULES), Blobs.open(f"file://{folder}/blobs"))
        self._kafka_url = kafka_url
        given = {"bind": "127.0.0.1:0", "kafka_url": kafka_url, "deadline_grace_s": 0.0, "data_dir": folder}
        self._settings = Settings(**given, token="0" * 32, secret="0" * 32)  # type: ignore[arg-type]
        self._types = [name for topic in self.catalogue.topics() if topic.name in OUTPUTS for name in topic.type_names]
        self._taken = self._looked_at = self._owed = 0

    async def steps(self) -> list[Step]:
        """Drive the service until nothing more happens; what its journal then holds. Raises TimeoutError."""
        plans = [TopicPlan(name, partitions=1) for name in (*TOPICS, *OUTPUTS)]
        host, _, port = self._kafka_url.partition(":")
        wanted = (OSError, Transient)
        async for attempt in stamina.retry_context(on=wanted, attempts=None, timeout=PATIENCE_S, wait_max=0.5):
            with attempt:  # the broker may have been started just now
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                await ensure_topics(BrokerSettings(self._kafka_url), plans)
        parts = await build(self._settings, self.clock)
        self._timer = next(part for part in parts if isinstance(part, Timer))
        self._store = EventStore.open(self._settings.store_url, self.catalogue, self.clock)
        running = [asyncio.create_task(part.run()) for part in parts]
        try:
            async with self._connected():
                await self.live()
            return await recorded_steps(self._store)
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=PATIENCE_S)
            await self._store.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        self._producer = AIOKafkaProducer(bootstrap_servers=self._kafka_url, acks="all")
        self._consumer = AIOKafkaConsumer(
            *OUTPUTS, bootstrap_servers=self._kafka_url, auto_offset_reset="earliest", fetch_max_wait_ms=10
        )
        await self._producer.start()
        await self._consumer.start()
        try:
            yield
        finally:
            await self._producer.stop()
            await self._consumer.stop()

    async def deliver(self, events: Sequence[Event]) -> None:
        for topic, some in groupby(events, lambda event: self.catalogue.topic_of(type_name(event.message))):
            sent = [
                await self._producer.send(
                    cast(str, topic),
                    event.message.SerializeToString(deterministic=True),
                    key=event.key.encode(),
                    headers=to_headers(event),
                )
                for event in some
            ]
            await asyncio.gather(*sent)
            await self._committed(len(sent))
        await self._hear()

    async def tick(self) -> None:
        self._timer.wake()
        await self._committed(1)
        await self._hear()

    def next_deadline_s(self) -> float | None:
        return self._timer.due_s()

    async def _committed(self, inputs: int) -> None:
        self._taken += inputs
        async with asyncio.timeout(PATIENCE_S):
            async for _ in every(_LOOK_S):
                if await self._store.version(f"scheduler.queue/{RUN}") >= self._taken:
                    return

    async def _hear(self) -> None:
        """As many messages as the outbox holds; what they say comes from the broker alone."""
        while owed := await self._store.notifications(self._looked_at, 1000, self._types):
            self._looked_at, self._owed = owed[-1][0], self._owed + len(owed)
        while self._owed:
            async with asyncio.timeout(PATIENCE_S):
                record = await self._consumer.getone()
            self._owed -= 1
            await self.react(from_record(record.headers, record.value or b"").message)


@contextmanager
def broker(folder: Path, kind: str) -> Iterator[str]:
    """URL of a fresh broker, "tansu" or "kafka" (KAFKA_HOME says where), which is killed at the end."""
    port, out = free_port(), folder / "broker"
    out.mkdir(parents=True)
    own = {name: value for name, value in os.environ.items() if kind == "kafka" or name != "KAFKA_HOME"}
    command = [sys.executable, "-m", "services.cli.backends.broker", "--port", str(port), "--dir", str(out / "log")]
    program = Program("broker", [*command, "--controller-port", str(free_port())], own, out / "broker.txt")
    program.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        program.kill()
