"""kill -9 between append and publish, between publish and cursor, and between a handler's effect and its commit."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from forgerl.events.v1 import gateway_pb2

from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.topics import BrokerSettings

pytestmark = pytest.mark.broker
PUBLISHER = Path(__file__).with_name("dying_publisher.py")
CONSUMER = Path(__file__).with_name("dying_consumer.py")
TOPIC = "forgerl.gateway.episode.v1"


def dies(program: Path, *arguments: str) -> None:
    ended = subprocess.run([sys.executable, str(program), *arguments], timeout=60, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]


@pytest.mark.parametrize("moment", ["append", "publish"])
async def test_a_publisher_killed_at_any_moment_loses_nothing(broker, tmp_path, eventually, moment: str) -> None:
    url, catalogue = f"sqlite:///{tmp_path}/source.db", Catalogue.from_modules([gateway_pb2])
    await asyncio.to_thread(dies, PUBLISHER, url, broker.url, moment)
    source = EventStore.open(url, catalogue, SystemClock())
    sink = EventStore.open(f"sqlite:///{tmp_path}/sink.db", catalogue, SystemClock())
    settings, handled = BrokerSettings(broker.url), list[str]()

    async def handle(events: Sequence[Event]) -> Sequence[Write]:
        handled.extend(event.message.reason for event in events if event.key == moment)  # type: ignore[attr-defined]
        return []

    consumer = Broker(settings, catalogue, sink)
    consumer.subscribe([TOPIC], service=f"crash-{moment}", handler=handle)
    parts = [asyncio.create_task(part.run()) for part in (consumer, Relay(source, settings, catalogue, "gateway"))]
    await source.append([Write(f"gateway.episode/{moment}", 3, (fact(moment, "last"),))])
    await eventually(lambda: "last" in handled, 30)
    assert handled == ["0", "1", "2", "last"]
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)
    await source.close()
    await sink.close()


async def test_a_consumer_killed_before_its_commit_handles_again_and_writes_once(broker, tmp_path, eventually) -> None:
    catalogue = Catalogue.from_modules([gateway_pb2])
    source = EventStore.open(f"sqlite:///{tmp_path}/source.db", catalogue, SystemClock())
    await source.append([Write("gateway.episode/killed", 0, (fact("killed", "x"),))])
    relay = asyncio.create_task(Relay(source, BrokerSettings(broker.url), catalogue, "gateway").run())
    sink_url, effects = f"sqlite:///{tmp_path}/sink.db", tmp_path / "effects.txt"
    await asyncio.to_thread(dies, CONSUMER, sink_url, broker.url, str(effects), "die")
    await asyncio.to_thread(dies, CONSUMER, sink_url, broker.url, str(effects), "die after commit")
    assert effects.read_text().split() == ["killed", "killed"]
    sink = EventStore.open(sink_url, catalogue, SystemClock())
    assert [event.id for event in await sink.read("sink.copy/killed")] == ["sink.copy/killed@1"]
    assert await sink.seen_version("crash-consumer", "gateway.episode/killed") == 1
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    await source.close()
    await sink.close()


def fact(key: str, reason: str) -> gateway_pb2.EpisodeCancelled:
    return gateway_pb2.EpisodeCancelled(episode_id=key, reason=reason)
