"""The reward service as a process, on a real broker: killed -9 again and again, it scores each episode once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from brokers import RealBroker, free_port
from forgerl.common.v1 import task_pb2
from forgerl.events.v1.gateway_pb2 import EpisodeSubmitted, TrajectorySealed
from forgerl.events.v1.reward_pb2 import EpisodeScored
from forgerl.events.v1.rollout_pb2 import EpisodeFinished
from google.protobuf.message import Message

from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.environments.registry import environments
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.topics import BrokerSettings
from services.reward.bootstrap import EVENT_MODULES

pytestmark = pytest.mark.broker
EPISODES, KILLS = 40, 5


class World:
    """Gateway and rollout: they tell of episodes, a part at a time; and the listener that counts what is scored."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.settings = folder, BrokerSettings(url)
        self.catalogue = Catalogue.from_modules(EVENT_MODULES)
        self.stores = {name: self.store(name) for name in ("gateway", "rollout", "world")}
        self.blobs = Blobs.open(f"file://{folder}/blobs")
        self.scored: list[tuple[str, float]] = []
        self.changed = asyncio.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def store(self, name: str) -> EventStore:
        return EventStore.open(f"sqlite:///{self.folder}/{name}.db", self.catalogue, SystemClock())

    async def react(self, events: Sequence[Event]) -> Sequence[Write]:
        for event in events:
            message = event.message
            assert isinstance(message, EpisodeScored)
            self.scored.append((message.episode_id, message.score.performance))
            self.changed.set()
        return ()

    async def append(self, service: str, message: Message, version: int = 0) -> None:
        await self.stores[service].append([Write(self.catalogue.stream_of(message), version, (message,))])

    async def tell(self, index: int) -> None:
        """One episode's three events; every other one gives a wrong answer."""
        task = environments()["tool"].task("train", index)
        names = {"episode_id": f"e{index}", "run_id": "r"}
        nodes = (
            Node(0, -1, "context", -1, "user", '{"role":"user","content":"?"}', (1, 2)),
            Node(1, 0, "sampled", 0, "assistant", '{"content":"x"}', (3,), (-0.5,), (Span(0, 1, 0, "d"),), 1.0, 1.0),
        )
        trajectory = encode(Trajectory(f"e{index}", "r", nodes))
        submitted = EpisodeSubmitted(**names, group_id=f"g{index}", domain="tool")
        submitted.task.environment, submitted.task.task_id = "tool", task.task_id
        submitted.task.split, submitted.task.payload = task_pb2.SPLIT_TRAIN, task.payload
        await self.append("gateway", submitted)
        answer = json.loads(task.payload)["answer"] if index % 2 else "nothing of the kind"
        finished = EpisodeFinished(**names, outcome=task_pb2.OUTCOME_COMPLETED, answer=answer)
        await self.append("rollout", finished)
        blob = await self.blobs.put(trajectory, MEDIA_TYPE)
        await self.append("gateway", TrajectorySealed(**names, trajectory=blob, sampled_tokens=1), 1)

    def start(self) -> None:
        environment = {
            **os.environ,
            "FORGERL_DATA_DIR": str(self.folder / "reward"),
            "FORGERL_STORE_URL": f"sqlite:///{self.folder}/reward.db",
            "FORGERL_BLOB_URL": f"file://{self.folder}/blobs",
            "FORGERL_KAFKA_URL": self.settings.url,
            "FORGERL_REWARD_HEALTH_BIND": f"127.0.0.1:{free_port()}",
            "FORGERL_TOKEN": "test-token",
            "FORGERL_SECRET": "test-secret",
        }
        with (self.folder / "reward.log").open("ab") as log:
            command = [sys.executable, "-m", "services.reward"]
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    async def heard(self, count: int) -> None:
        while len(self.scored) < count:
            self.changed.clear()
            await self.changed.wait()


async def test_killed_again_and_again_it_scores_every_episode_once(own_broker: RealBroker, tmp_path: Path) -> None:
    world = World(tmp_path, own_broker.url)
    broker = Broker(world.settings, world.catalogue, world.stores["world"])
    broker.subscribe(["forgerl.reward.score.v1"], service="world", handler=world.react)
    relays = [Relay(world.stores[name], world.settings, world.catalogue, name) for name in ("gateway", "rollout")]
    tasks = [asyncio.create_task(part.run()) for part in (broker, *relays)]
    try:
        async with asyncio.timeout(200):
            for kill in range(KILLS):
                world.start()
                for index in range(kill * 8, kill * 8 + 8):
                    await world.tell(index)
                # After some were scored, at a moment that nobody chose: others are noted, scored or half published.
                await world.heard(kill * 8 + 3)
                world.kill()
            world.start()
            await world.heard(EPISODES)
    finally:
        world.kill()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=15)
    assert Counter(world.scored) == {(f"e{index}", float(index % 2)): 1 for index in range(EPISODES)}
    own = EventStore.open(f"sqlite:///{tmp_path}/reward.db", world.catalogue, SystemClock())
    for index in range(EPISODES):
        decided = [event.message for event in await own.read(f"reward.score/e{index}")]
        assert [type(message) for message in decided] == [EpisodeScored]
