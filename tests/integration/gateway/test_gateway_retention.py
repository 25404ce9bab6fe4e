"""The real gateway process hears of pruned episodes over a broker, also of what was said while it was dead."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from brokers import RealBroker
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2, rollout_pb2, scheduler_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import episode_service_pb2_grpc as episode_grpc
from forgerl.gateway.v1 import record_pb2
from forgerl.gateway.v1 import run_service_pb2_grpc as run_grpc
from test_gateway_process import FOREIGN, TOKEN, Gateway, ask, publish, run_request, submission

from services.kernel import rpc
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Cause, Event, to_headers
from services.kernel.event_store import EventStore
from services.kernel.topics import BrokerSettings, TopicPlan, ensure_topics

pytestmark = pytest.mark.broker
RETENTION = "forgerl.scheduler.retention.v1"


async def prune(broker: RealBroker, version: int, *episode_ids: str) -> None:
    told = scheduler_pb2.EpisodesPruned(run_id="r1", episode_ids=episode_ids, keep_steps=1)
    event = Event("scheduler.retention/r1", version, datetime(2026, 1, 1, tzinfo=UTC), told, Cause("c", "", ""))
    producer = AIOKafkaProducer(bootstrap_servers=broker.url)
    await producer.start()
    try:
        await producer.send_and_wait(RETENTION, told.SerializeToString(), key=b"r1", headers=to_headers(event))
    finally:
        await producer.stop()


def trajectories(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "blobs").rglob("*"))


def store_of(folder: Path) -> Path:
    (path,) = folder.rglob("gateway.db")
    return path


async def test_what_was_pruned_while_it_was_dead_is_freed_once(tmp_path: Path, own_broker: RealBroker, eventually):
    await ensure_topics(BrokerSettings(own_broker.url), [TopicPlan(name) for name in FOREIGN])
    gateway = Gateway(tmp_path, own_broker)
    try:
        async with rpc.connect(f"127.0.0.1:{gateway.port}", rpc.RpcSecurity(TOKEN)) as channel:
            runs, episodes = run_grpc.RunServiceStub(channel), episode_grpc.EpisodeServiceStub(channel)
            await ask(runs.CreateRun, run_request())
            for name in ("a", "b"):
                await ask(episodes.SubmitEpisode, submission(name))
                finished = rollout_pb2.EpisodeFinished(episode_id=name, run_id="r1", outcome=task_pb2.OUTCOME_COMPLETED)
                await publish(own_broker, "forgerl.rollout.episode.v1", finished, 1)

            async def sealed() -> bool:
                asked = [episode_api.GetEpisodeRequest(episode_id=name) for name in ("a", "b")]
                views = await asyncio.gather(*(ask(episodes.GetEpisode, one) for one in asked))
                return all(view.state == episode_api.EPISODE_STATE_SEALED for view in views)

            async def one_is_left() -> bool:
                return trajectories(tmp_path) == 1

            await eventually(sealed, timeout_s=30)
            assert trajectories(tmp_path) == 2
            gateway.kill()
            await prune(own_broker, 1, "a")
            await prune(own_broker, 1, "a")
            gateway.start()
            await eventually(one_is_left, timeout_s=30)
            await prune(own_broker, 2, "b")

            async def none_is_left() -> bool:
                return trajectories(tmp_path) == 0

            await eventually(none_is_left, timeout_s=30)
        assert gateway.terminate() == 0, gateway.log
    finally:
        gateway.kill()
    catalogue = Catalogue.from_modules([gateway_pb2, scheduler_pb2])
    store = EventStore.open(f"sqlite:///{store_of(tmp_path)}", catalogue, SystemClock())
    told = [event.message for event in await store.read("gateway.freed/r1")]
    await store.close()
    records = [(one.event_id, one.blobs) for one in told if isinstance(one, record_pb2.EpisodesFreed)]
    assert records == [("scheduler.retention/r1@1", 1), ("scheduler.retention/r1@2", 1)]
