"""A broker that doesn't answer leaves no connection open behind what tried to reach it."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from forgerl.events.v1 import inference_pb2

from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.dead_letters import list_dead, replay
from services.kernel.topics import BrokerSettings

REPORT = inference_pb2.WorkerReported(worker_id="engine-0")


@pytest.fixture
def nowhere() -> BrokerSettings:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return BrokerSettings(f"127.0.0.1:{probe.getsockname()[1]}")


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """What the loop was told of; aiokafka complains of a client that was dropped without being closed."""
    found: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["message"]))
    yield found


@pytest.fixture
def lossy() -> Catalogue:
    return Catalogue.from_modules([inference_pb2])


async def test_a_lost_signal_leaves_no_client_behind(
    nowhere: BrokerSettings, complaints: list[str], lossy: Catalogue
) -> None:
    broker = Broker(nowhere, lossy)
    for _ in range(3):
        await broker.signal(REPORT)
    gc.collect()
    assert not complaints


async def test_signals_at_the_same_time_share_one_producer(
    nowhere: BrokerSettings, lossy: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[AIOKafkaProducer] = []

    async def start(producer: AIOKafkaProducer) -> None:
        started.append(producer)
        await asyncio.sleep(0)

    async def send(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(AIOKafkaProducer, "start", start)
    monkeypatch.setattr(AIOKafkaProducer, "send_and_wait", send)
    broker = Broker(nowhere, lossy)
    await asyncio.gather(*(broker.signal(REPORT) for _ in range(3)))
    assert len(started) == 1
    await started[0].stop()


@pytest.mark.parametrize("ask", [list_dead, replay], ids=["list", "replay"])
async def test_asking_for_dead_letters_leaves_no_client_behind(
    nowhere: BrokerSettings, complaints: list[str], ask
) -> None:
    with pytest.raises(KafkaError):
        await ask(nowhere)
    gc.collect()
    assert not complaints
