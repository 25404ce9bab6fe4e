"""Rollout and trainer by script: what the scheduler admits is over at once, what it assembles is trained at once.

Both have a store, a relay and an inbox of their own, as the real services do. They refuse to compute anything.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1 import manifest_pb2
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message

from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.lifecycle import Part
from services.kernel.outbox import Relay
from services.kernel.topics import BrokerSettings

EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)
ADMISSION = ["forgerl.scheduler.admission.v1"]
BATCHES = ["forgerl.gateway.run.v1", "forgerl.scheduler.batch.v1"]


class Rollout:
    """Every admitted episode ends as it was recorded, in one commit a batch of admissions."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self._answers = answers

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """The writes for a batch of admissions; revocations need none."""
        return [
            Write(f"rollout.episode/{event.key}", 0, (self._ended(event.message),))
            for event in events
            if isinstance(event.message, scheduler_pb2.EpisodeAdmitted)
        ]

    def _ended(self, admitted: scheduler_pb2.EpisodeAdmitted) -> Message:
        return rollout_pb2.EpisodeFinished(
            episode_id=admitted.episode_id,
            run_id=admitted.run_id,
            outcome=task_pb2.OUTCOME_COMPLETED,
            answer=self._answers[admitted.episode_id],
            agent_wall_s=1.0,
        )


class Trainer:
    """Every batch is read, reported as trained, and answered with a new policy."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        # Episodes handed over and when, by run.
        self.batches: dict[str, list[tuple[float, int]]] = {}
        self.moved = asyncio.Event()

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """One write a run."""
        said: dict[str, list[Message]] = {}
        begins: dict[str, int] = {}
        for event in events:
            match event.message:
                case gateway_pb2.RunCreated(run_id=run_id):
                    begins[run_id] = 0
                    said[run_id] = [trainer_pb2.PolicyPublished(run_id=run_id, step=0, digest=f"{run_id}-0")]
                case scheduler_pb2.BatchAssembled() as batch:
                    begins.setdefault(batch.run_id, 2 * batch.batch - 1)
                    said.setdefault(batch.run_id, []).extend(await self._trained(batch))
                case _:
                    pass
        return [Write(f"trainer.policy/{run_id}", begins[run_id], tuple(told)) for run_id, told in said.items()]

    async def _trained(self, batch: scheduler_pb2.BatchAssembled) -> tuple[Message, ...]:
        names = {"run_id": batch.run_id, "step": batch.batch}
        manifest = manifest_pb2.BatchManifest.FromString(await self._blobs.get(batch.manifest))
        episodes = [episode for item in manifest.items for episode in item.episodes]
        report = report_pb2.StepReport(**names)
        for episode in episodes:
            report.episodes.add(episode_id=episode.episode_id, trained=episode.eligible, why_not=episode.why_not)
        ref = await self._blobs.put(report.SerializeToString(), "application/protobuf")
        self.batches.setdefault(batch.run_id, []).append((monotonic(), len(episodes)))
        self.moved.set()
        policy = trainer_pb2.PolicyPublished(**names, digest=f"{batch.run_id}-{batch.batch}")
        return trainer_pb2.StepCompleted(**names, report=ref), policy

    async def has_batches(self, run_id: str, count: int) -> float:
        """When the run's batch number `count` came."""
        while len(self.batches.get(run_id, ())) < count:
            self.moved.clear()
            await self.moved.wait()
        return self.batches[run_id][count - 1][0]


class World:
    """The scripted services of one stack; rollout's place can be given to the real one."""

    def __init__(self, folder: Path, kafka_url: str, blobs: Blobs) -> None:
        self._folder, self._settings = folder, BrokerSettings(kafka_url)
        self._catalogue = Catalogue.from_modules(EVENT_MODULES)
        self.answers: dict[str, str] = {}
        self.trainer = Trainer(blobs)

    @asynccontextmanager
    async def trainer_running(self) -> AsyncIterator[None]:
        """Inside, batches are answered."""
        async with self._running("trainer", BATCHES, self.trainer):
            yield

    @asynccontextmanager
    async def rollout_running(self) -> AsyncIterator[None]:
        """Inside, admissions are answered."""
        async with self._running("rollout", ADMISSION, Rollout(self.answers)):
            yield

    @asynccontextmanager
    async def _running(self, name: str, topics: list[str], handler: Rollout | Trainer) -> AsyncIterator[None]:
        store = EventStore.open(f"sqlite:///{self._folder}/stores/{name}.db", self._catalogue, SystemClock())
        broker = Broker(self._settings, self._catalogue, store)
        broker.subscribe(topics, service=name, handler=handler.handle)
        parts: list[Part] = [broker, Relay(store, self._settings, self._catalogue, name)]
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            await broker.ready()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=15)
            await store.close()
