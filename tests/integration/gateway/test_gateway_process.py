"""The gateway as a process, over a real broker: what it publishes, what it hears, and what a kill -9 leaves."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from brokers import RealBroker, free_port
from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, rollout_pb2, scheduler_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import episode_service_pb2_grpc as episode_grpc
from forgerl.gateway.v1 import run_service_pb2 as run_api
from forgerl.gateway.v1 import run_service_pb2_grpc as run_grpc
from google.protobuf.message import Message

from services.kernel import rpc
from services.kernel.envelope import Cause, Event, from_record, to_headers
from services.kernel.topics import BrokerSettings, TopicPlan, ensure_topics

pytestmark = pytest.mark.broker
FOREIGN = (
    "forgerl.trainer.policy.v1",
    "forgerl.scheduler.batch.v1",
    "forgerl.scheduler.admission.v1",
    "forgerl.scheduler.retention.v1",
    "forgerl.rollout.episode.v1",
    "forgerl.reward.score.v1",
)


TOKEN, SECRET = "internal-bearer-of-the-test", "signing-key-of-the-test-that-is-long-enough"


class Gateway:
    """One gateway process."""

    def __init__(self, folder: Path, broker: RealBroker) -> None:
        self.port, self.http_port, self._folder = free_port(), free_port(), folder
        own = {
            "FORGERL_DATA_DIR": str(folder),
            "FORGERL_KAFKA_URL": broker.url,
            "FORGERL_TOKEN": TOKEN,
            "FORGERL_SECRET": SECRET,
            "FORGERL_GATEWAY_BIND": f"127.0.0.1:{self.port}",
            "FORGERL_GATEWAY_HTTP_BIND": f"127.0.0.1:{self.http_port}",
            "FORGERL_GATEWAY_URL": f"http://127.0.0.1:{self.http_port}",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
        self._env = {**kept, **own}
        self.start()

    def start(self) -> None:
        with (self._folder / "log.txt").open("ab") as log:
            command = [sys.executable, "-m", "services.gateway"]
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    @property
    def log(self) -> str:
        return (self._folder / "log.txt").read_text()


async def publish(broker: RealBroker, topic: str, message: Message, version: int) -> None:
    key = message.episode_id  # type: ignore[attr-defined]
    stream = f"{topic.removeprefix('forgerl.').removesuffix('.v1')}/{key}"
    event = Event(stream, version, datetime(2026, 1, 1, tzinfo=UTC), message, Cause("c", "", ""))
    producer = AIOKafkaProducer(bootstrap_servers=broker.url)
    await producer.start()
    try:
        await producer.send_and_wait(topic, message.SerializeToString(), key=key.encode(), headers=to_headers(event))
    finally:
        await producer.stop()


async def events_of(broker: RealBroker, topic: str, count: int) -> list[Event]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.url, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            return [from_record(r.headers, r.value) for r in [await consumer.getone() for _ in range(count)]]
    finally:
        await consumer.stop()


async def ask(stub_call, request, within_s: float = 30.0):
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await stub_call(request, wait_for_ready=True, timeout=within_s)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise


def run_request() -> run_api.CreateRunRequest:
    spec = run_pb2.RunSpec(
        model=run_pb2.ModelSpec(path="/m"),
        domains=[run_pb2.DomainSpec(name="reasoning")],
        end=run_pb2.EndSpec(steps=3),
    )
    return run_api.CreateRunRequest(run_id="r1", spec=spec)


def submission(name: str) -> episode_api.Submission:
    return episode_api.Submission(
        episode_id=name,
        run_id="r1",
        kind=task_pb2.EPISODE_KIND_TRAIN,
        group_id="g",
        domain="reasoning",
        task=task_pb2.Task(environment="reasoning", task_id="t"),
    )


async def test_nothing_is_lost_over_a_kill_and_the_seal_goes_out_once(
    tmp_path: Path, own_broker: RealBroker, eventually
):
    await ensure_topics(BrokerSettings(own_broker.url), [TopicPlan(name) for name in FOREIGN])
    gateway = Gateway(tmp_path, own_broker)
    try:
        security = rpc.RpcSecurity(TOKEN)
        async with rpc.connect(f"127.0.0.1:{gateway.port}", security) as channel:
            runs, episodes = run_grpc.RunServiceStub(channel), episode_grpc.EpisodeServiceStub(channel)
            await ask(runs.CreateRun, run_request())
            await ask(episodes.SubmitEpisode, submission("a"))
            gateway.kill()
            gateway.start()
            await ask(episodes.SubmitEpisode, submission("b"))
            assert (await ask(episodes.SubmitEpisode, submission("a"))).created is False
            admitted = scheduler_pb2.EpisodeAdmitted(episode_id="a", run_id="r1")
            await publish(own_broker, "forgerl.scheduler.admission.v1", admitted, 1)
            finished = rollout_pb2.EpisodeFinished(episode_id="a", run_id="r1", outcome=task_pb2.OUTCOME_COMPLETED)
            await publish(own_broker, "forgerl.rollout.episode.v1", finished, 1)
            await publish(own_broker, "forgerl.rollout.episode.v1", finished, 1)

            async def sealed() -> bool:
                view = await ask(episodes.GetEpisode, episode_api.GetEpisodeRequest(episode_id="a"))
                return view.state == episode_api.EPISODE_STATE_SEALED

            await eventually(sealed, timeout_s=30)
            gateway.kill()
            gateway.start()
            await eventually(sealed, timeout_s=30)
        events = await events_of(own_broker, "forgerl.gateway.episode.v1", 3)
        by_id = {event.id: event for event in events}
        assert set(by_id) == {"gateway.episode/a@1", "gateway.episode/b@1", "gateway.episode/a@2"}
        assert isinstance(by_id["gateway.episode/a@2"].message, gateway_pb2.TrajectorySealed)
        # Each episode is a trace of its own, and its later events stay in it.
        traces = [
            by_id[name].cause.traceparent.split("-")[1] for name in ("gateway.episode/a@1", "gateway.episode/b@1")
        ]
        assert len(set(traces)) == 2
        assert gateway.terminate() == 0, gateway.log
    finally:
        gateway.kill()
    assert "service.ready" in gateway.log
    assert TOKEN not in gateway.log and SECRET not in gateway.log
