"""What the kernel promises over every broker: once, in order, nothing lost, bad streams aside."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from brokers import RealBroker
from forgerl.events.v1 import gateway_pb2, inference_pb2

from services.kernel import dead_letters
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue, Topic
from services.kernel.clock import SystemClock
from services.kernel.envelope import Cause, Event, to_headers
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.topics import BrokerSettings

pytestmark = pytest.mark.broker
SIGNALS = Catalogue.from_modules([inference_pb2])


CAUSE = Cause("conversation", "", "")


def fact(key: str, reason: str = "") -> gateway_pb2.EpisodeCancelled:
    return gateway_pb2.EpisodeCancelled(episode_id=key, reason=reason)


@dataclass
class Side:
    """A publishing store with its relay, and a consuming service that notes what its handler was given."""

    settings: BrokerSettings
    topic: Topic
    source: EventStore
    sink: EventStore
    name: str = "sink"
    handled: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)
    refused: int = 0

    def stream(self, key: str) -> str:
        return f"{self.topic.noun}/{key}"

    async def append(self, key: str, count: int) -> list[str]:
        stream = self.stream(key)
        at = await self.source.version(stream)
        messages = tuple(fact(key, str(at + 1 + number)) for number in range(count))
        return [event.id for event in await self.source.append([Write(stream, at, messages)])]

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        for event in events:
            if event.id in self.failing:
                self.refused += 1
                raise self.failing[event.id]
        self.handled += [event.id for event in events]
        return []


def own_topic() -> Topic:
    """A topic that no other test writes to: brokers are shared by the session."""
    full_name = gateway_pb2.EpisodeCancelled.DESCRIPTOR.full_name
    return Topic(f"forgerl.t{uuid4().hex[:8]}.episode.v1", "episode_id", False, (full_name,))


@asynccontextmanager
async def running(broker: RealBroker, folder: Path) -> AsyncIterator[Side]:
    topic = own_topic()
    catalogue = Catalogue([topic])
    source = EventStore.open(f"sqlite:///{folder}/source.db", catalogue, SystemClock())
    sink = EventStore.open(f"sqlite:///{folder}/sink.db", catalogue, SystemClock())
    side = Side(BrokerSettings(broker.url, gap_for_s=0.5, unknown_for_s=0.5), topic, source, sink, f"sink-{topic.noun}")
    consumer = Broker(side.settings, catalogue, sink)
    consumer.subscribe([topic.name], service=side.name, handler=side.handle)
    relay = Relay(source, side.settings, catalogue, topic.noun.partition(".")[0])
    tasks = [asyncio.create_task(part.run()) for part in (relay, consumer)]
    try:
        await asyncio.wait_for(consumer.ready(), 30)
        yield side
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await source.close()
        await sink.close()


async def publish(side: Side, records: Sequence[tuple[bytes, Sequence[tuple[str, bytes]]]]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=side.settings.url, acks="all")
    await producer.start()
    for value, headers in records:
        await producer.send_and_wait(side.topic.name, value, key=b"same", headers=list(headers))
    await producer.stop()


def record_of(event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
    return event.message.SerializeToString(), to_headers(event)


async def test_every_event_arrives_once_and_in_order_within_its_stream(broker, tmp_path, eventually) -> None:
    async with running(broker, tmp_path) as side:
        wanted = [await side.append(f"k{number % 7}", 3) for number in range(70)]
        await eventually(lambda: len(side.handled) >= 210)
        assert sorted(side.handled) == sorted(event for events in wanted for event in events)
        for stream in range(7):
            own = [e for e in side.handled if e.startswith(f"{side.stream(f'k{stream}')}@")]
            assert own == [f"{side.stream(f'k{stream}')}@{version}" for version in range(1, 31)]


async def test_a_duplicate_is_handled_once(broker, tmp_path, eventually) -> None:
    async with running(broker, tmp_path) as side:
        await side.append("a", 2)
        await eventually(lambda: len(side.handled) == 2)
        await publish(side, [record_of(event) for event in await side.source.read(side.stream("a"))])
        await side.append("a", 1)
        await eventually(lambda: len(side.handled) == 3)
        assert side.handled == [f"{side.stream('a')}@{version}" for version in (1, 2, 3)]


async def test_reordered_events_wait_for_their_predecessor(broker, tmp_path, eventually) -> None:
    async with running(broker, tmp_path) as side:
        events = [Event(side.stream("a"), version, SystemClock().now(), fact("a"), CAUSE) for version in (1, 2, 3)]
        await publish(side, [record_of(events[at]) for at in (1, 0, 1, 2)])
        await eventually(lambda: len(side.handled) == 3)
        assert side.handled == [event.id for event in events]


async def test_a_poison_message_is_set_aside_and_replayed_with_what_follows_it(broker, tmp_path, eventually) -> None:
    async with running(broker, tmp_path) as side:
        bad = f"{side.stream('z')}@2"
        side.failing[bad] = Permanent("cannot")
        await side.append("z", 3)
        await side.append("y", 1)
        await eventually(lambda: f"{side.stream('y')}@1" in side.handled)

        async def parked() -> bool:
            return len(await dead_letters.list_dead(side.settings, side.name)) == 2

        await eventually(parked)
        letters = await dead_letters.list_dead(side.settings, side.name)
        assert [(letter.event_id, letter.topic) for letter in letters] == [
            (bad, side.topic.name),
            (f"{side.stream('z')}@3", side.topic.name),
        ]
        assert "cannot" in letters[0].error
        assert not any(event.endswith("z@3") for event in side.handled)
        side.failing.clear()
        assert await dead_letters.replay(side.settings, side.name) == 2
        await eventually(lambda: f"{side.stream('z')}@3" in side.handled)
        assert await dead_letters.list_dead(side.settings, side.name) == []
        assert await side.sink.seen_version(side.name, side.stream("z")) == 3


@pytest.mark.parametrize("broken", ["header", "body", "type", "no headers"])
async def test_a_record_that_cannot_be_read_is_set_aside(broker, tmp_path, eventually, broken: str) -> None:
    async with running(broker, tmp_path) as side:
        event = Event(side.stream("bad"), 1, SystemClock().now(), fact("x"), CAUSE)
        value, headers = event.message.SerializeToString(), dict(to_headers(event))
        bad_headers = {"header": {"ce_id": b"\xff\xfe"}, "type": {"ce_type": b"forgerl.events.v1.Nothing"}}
        given = {} if broken == "no headers" else headers | bad_headers.get(broken, {})
        await publish(side, [(b"\xff\xff" if broken == "body" else value, list(given.items()))])
        await side.append("a", 1)
        await eventually(lambda: side.handled)

        async def kept() -> bool:
            return len(await dead_letters.list_dead(side.settings, side.name)) == 1

        await eventually(kept)


async def test_a_transient_failure_is_tried_again_until_it_passes(broker, tmp_path, eventually) -> None:
    async with running(broker, tmp_path) as side:
        side.failing[f"{side.stream('a')}@1"] = Transient("not yet")
        await side.append("a", 2)
        # The batch, then the event by itself, again and again.
        await eventually(lambda: side.refused >= 4)
        assert side.handled == []
        side.failing.clear()
        await eventually(lambda: len(side.handled) == 2)
        assert await dead_letters.list_dead(side.settings, side.name) == []


async def test_signals_reach_those_who_listen(broker, tmp_path, eventually) -> None:
    settings, heard = BrokerSettings(broker.url), list[object]()

    async def hear(event: Event) -> None:
        heard.append(event.message)

    ear = Broker(settings, SIGNALS)
    ear.listen("forgerl.inference.worker.v1", hear)
    task = asyncio.create_task(ear.run())
    await ear.ready()
    message = inference_pb2.WorkerReported(worker_id=f"w{uuid4().hex[:6]}", sequence=4)

    async def arrives() -> bool:
        await ear.signal(message)
        return message in heard

    await eventually(arrives)
    with pytest.raises(Permanent, match="not a signal"):
        await ear.signal(fact("x"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_broker_killed_and_emptied_loses_nothing(own_broker, tmp_path, eventually) -> None:
    async with running(own_broker, tmp_path) as side:
        first = await side.append("a", 5)
        await eventually(lambda: len(side.handled) == 5)
        await asyncio.to_thread(own_broker.kill)
        second = await side.append("b", 5)
        await asyncio.to_thread(own_broker.restart_emptied)
        await eventually(lambda: len(side.handled) == 10, 60)
        third = await side.append("a", 2)
        await eventually(lambda: len(side.handled) == 12, 60)
        assert sorted(side.handled) == sorted(first + second + third)


async def test_a_consumer_that_joins_after_an_emptying_gets_everything(own_broker, tmp_path, eventually) -> None:
    async with running(own_broker, tmp_path) as side:
        await side.append("a", 3)
        await eventually(lambda: len(side.handled) == 3)
        await asyncio.to_thread(own_broker.restart_emptied)
        catalogue = Catalogue([side.topic])
        sink = EventStore.open(f"sqlite:///{tmp_path}/late.db", catalogue, SystemClock())
        late = Side(side.settings, side.topic, side.source, sink, f"late-{side.topic.noun}")
        joining = Broker(late.settings, catalogue, sink)
        joining.subscribe([side.topic.name], service=late.name, handler=late.handle)
        task = asyncio.create_task(joining.run())
        await eventually(lambda: len(late.handled) == 3, 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sink.close()
