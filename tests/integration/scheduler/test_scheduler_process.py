"""The scheduler as a process, on a real broker: killed -9 again and again, it hands over every batch exactly once."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from brokers import RealBroker, free_port
from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1 import manifest_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from google.protobuf.message import Message

from services.contract.run_spec import resolve
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.errors import Conflict
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, connect
from services.kernel.topics import BrokerSettings
from services.scheduler.bootstrap import EVENT_MODULES

pytestmark = pytest.mark.broker
OTHERS = ("gateway", "rollout", "reward", "trainer")
STEPS, GROUPS, KILLS, TOKEN = 6, 12, 5, "test-token"


class World:
    """All other services: they submit, run, score and train whatever the scheduler says, once."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.settings = folder, BrokerSettings(url)
        self.catalogue = Catalogue.from_modules(EVENT_MODULES)
        self.stores = {name: self.store(name) for name in (*OTHERS, "world")}
        self.blobs = Blobs.open(f"file://{folder}/blobs")
        self.batches: list[int] = []
        self.trained: list[str] = []
        self.seen = 0
        self.heard_more = asyncio.Event()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def store(self, name: str) -> EventStore:
        return EventStore.open(f"sqlite:///{self.folder}/{name}.db", self.catalogue, SystemClock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        broker = Broker(self.settings, self.catalogue, self.stores["world"])
        topics = ["forgerl.scheduler.admission.v1", "forgerl.scheduler.batch.v1"]
        broker.subscribe(topics, service="world", handler=self.react)
        relays = [Relay(self.stores[name], self.settings, self.catalogue, name) for name in OTHERS]
        tasks = [asyncio.create_task(part.run()) for part in (broker, *relays)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=15)
            self.kill()

    def start(self) -> None:
        environment = {
            **os.environ,
            "FORGERL_DATA_DIR": str(self.folder / "scheduler"),
            "FORGERL_BLOB_URL": f"file://{self.folder}/blobs",
            "FORGERL_KAFKA_URL": self.settings.url,
            "FORGERL_SCHEDULER_BIND": f"127.0.0.1:{self.port}",
            "FORGERL_TOKEN": TOKEN,
            "FORGERL_SECRET": "test-secret",
        }
        with (self.folder / "scheduler.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.scheduler"], env=environment, stderr=log, stdout=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    async def heard(self, count: int) -> None:
        while self.seen < count:
            self.heard_more.clear()
            await self.heard_more.wait()

    async def append(self, service: str, *messages: Message) -> None:
        """Append to a service's stream; a repeat of what is there is no error."""
        stream = self.catalogue.stream_of(messages[0])
        with suppress(Conflict):
            await self.stores[service].append([Write(stream, self.after(messages[0]), messages)])

    def after(self, message: Message) -> int:
        match message:
            case gateway_pb2.TrajectorySealed():
                return 1
            case trainer_pb2.StepCompleted():
                return 2 * message.step - 1
            case _:
                return 0

    async def open(self) -> None:
        scheduling = run_pb2.SchedulingSpec(
            group_size=2, items_per_batch=2, queue_items=8, window_items=3, in_flight_items=6
        )
        spec = run_pb2.RunSpec(domains=[run_pb2.DomainSpec(name="tool")], scheduling=scheduling)
        spec.end.steps = STEPS
        await self.append("gateway", gateway_pb2.RunCreated(run_id="r", spec=resolve(spec)))
        await self.append("trainer", trainer_pb2.PolicyPublished(run_id="r", step=0))
        for index in range(GROUPS):
            for member in range(2):
                submitted = gateway_pb2.EpisodeSubmitted(
                    episode_id=f"g{index}.{member}", run_id="r", group_id=f"g{index}", domain="tool"
                )
                submitted.kind = task_pb2.EPISODE_KIND_TRAIN
                await self.append("gateway", submitted)

    async def react(self, events: Sequence[Event]) -> Sequence[Write]:
        for event in events:
            self.seen += 1
            self.heard_more.set()
            match event.message:
                case scheduler_pb2.EpisodeAdmitted():
                    await self.end_episode(event.message.episode_id)
                case scheduler_pb2.BatchAssembled():
                    await self.train(event.message)
                case _:
                    pass
        return ()

    async def end_episode(self, episode_id: str) -> None:
        trajectory = await self.blobs.put(episode_id.encode(), "text/plain")
        names = {"episode_id": episode_id, "run_id": "r"}
        score = score_pb2.Score(performance=float(episode_id.endswith("0")), failure_class="solved")
        await self.append("reward", reward_pb2.EpisodeScored(**names, score=score))
        await self.append("rollout", rollout_pb2.EpisodeFinished(**names, outcome=task_pb2.OUTCOME_COMPLETED))
        await self.append("gateway", gateway_pb2.TrajectorySealed(**names, trajectory=trajectory, sampled_tokens=3))

    async def train(self, batch: scheduler_pb2.BatchAssembled) -> None:
        manifest = manifest_pb2.BatchManifest.FromString(await self.blobs.get(batch.manifest))
        self.batches.append(batch.batch)
        self.trained += [episode.episode_id for item in manifest.items for episode in item.episodes]
        await self.append(
            "trainer",
            trainer_pb2.StepCompleted(run_id="r", step=batch.batch),
            trainer_pb2.PolicyPublished(run_id="r", step=batch.batch),
        )

    async def ledger(self) -> pb.RunLedger:
        channel = connect(f"127.0.0.1:{self.port}", RpcSecurity(TOKEN))
        try:
            return await SchedulerServiceStub(channel).GetLedger(pb.GetLedgerRequest(run_id="r"), timeout=10)
        finally:
            await channel.close()


async def killed_after_every_third_event(world: World, kills: int) -> None:
    """Start it, kill it -9 when it was heard of three times more, at moments of every kind; then let it live."""
    for _ in range(kills):
        world.start()
        await world.heard(world.seen + 3)
        world.kill()
    world.start()


async def test_killed_again_and_again_it_hands_over_every_batch_once(
    own_broker: RealBroker, tmp_path: Path, eventually: Callable[..., Awaitable[None]]
) -> None:
    world = World(tmp_path, own_broker.url)

    async def all_trained() -> bool:
        return len(world.batches) == STEPS and (await world.ledger()).trained == 2 * GROUPS

    async with world.running(), asyncio.timeout(150):
        await world.open()
        await killed_after_every_third_event(world, KILLS)
        await eventually(all_trained, timeout_s=100)
        ledger = await world.ledger()
    assert world.batches == list(range(1, STEPS + 1))
    assert sorted(world.trained) == sorted(f"g{index}.{member}" for index in range(GROUPS) for member in range(2))
    assert (ledger.submitted, ledger.in_flight, dict(ledger.dropped)) == (2 * GROUPS, 0, {})
