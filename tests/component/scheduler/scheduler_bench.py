"""The scheduler on a real event store and real blobs, fed events as the inbox would get them from the broker."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from clocks import ManualClock
from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1 import manifest_pb2
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message

from services.contract.run_spec import resolve
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import Clock
from services.kernel.envelope import Cause, Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.scheduler.adapters.reports import BlobReports
from services.scheduler.application import Scheduler
from services.scheduler.bootstrap import EVENT_MODULES, SERVICE, build_scheduler
from services.scheduler.entrypoints.consumer import Consumer

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def run_spec(**scheduling: object) -> run_pb2.RunSpec:
    """A small resolved run: one domain, groups of two, batches of one item."""
    numbers: dict[str, object] = {
        "group_size": 2,
        "items_per_batch": 1,
        "queue_items": 4,
        "window_items": 2,
        "in_flight_items": 4,
        **scheduling,
    }
    domains = [run_pb2.DomainSpec(name="tool")]
    return resolve(run_pb2.RunSpec(domains=domains, scheduling=run_pb2.SchedulingSpec(**numbers)))


class Bench:
    """One store, any number of scheduler processes on it, and the events of all other services."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.clock = clock or ManualClock(START)
        self.catalogue = Catalogue.from_modules(EVENT_MODULES)
        self.url = f"sqlite:///{folder}/scheduler.db"
        self.blobs = Blobs.open(f"file://{folder}/blobs")
        self.store = EventStore.open(self.url, self.catalogue, self.clock)
        self.versions: dict[str, int] = {}
        self.scheduler, self.consumer = self.process()

    def process(self) -> tuple[Scheduler, Consumer]:
        """Another process, without memory of what was before."""
        scheduler = build_scheduler(self.store, self.blobs, self.catalogue, self.clock)
        return scheduler, Consumer(scheduler, BlobReports(self.blobs), self.clock)

    def event(self, message: Message) -> Event:
        """The next event of the message's stream."""
        stream = self.catalogue.stream_of(message)
        self.versions[stream] = self.versions.get(stream, 0) + 1
        key = stream.partition("/")[2]
        cause = Cause(f"corr-{key}", "", f"00-{'ab' * 16}-{'cd' * 8}-01")
        return Event(stream, self.versions[stream], self.clock.now(), message, cause)

    async def feed(self, *messages: Message) -> list[Event]:
        """All messages in one batch."""
        events = [self.event(message) for message in messages]
        await self.deliver(events)
        return events

    async def deliver(self, events: Sequence[Event]) -> None:
        """Give events to the inbox, again or for the first time."""
        await Inbox(self.store, SERVICE).handle(events, self.consumer.handle)

    async def open(self, **scheduling: object) -> None:
        """A run with policy 0."""
        created = gateway_pb2.RunCreated(run_id="r", spec=run_spec(**scheduling))
        await self.feed(created, trainer_pb2.PolicyPublished(run_id="r", step=0))

    async def published(self, stream: str) -> list[Message]:
        """Messages of a published stream."""
        return [event.message for event in await self.store.read(stream)]

    async def batches(self) -> list[scheduler_pb2.BatchAssembled]:
        """Batches handed over so far."""
        messages = await self.published("scheduler.batch/r")
        return [message for message in messages if isinstance(message, scheduler_pb2.BatchAssembled)]

    async def manifest(self, batch: scheduler_pb2.BatchAssembled) -> manifest_pb2.BatchManifest:
        """What a batch is made of."""
        return manifest_pb2.BatchManifest.FromString(await self.blobs.get(batch.manifest))

    async def finish(self, episode_id: str, performance: float = 1.0) -> None:
        """The whole end of an episode, in one batch of events of three services."""
        await self.feed(*await self.ending(episode_id, performance))

    async def ending(self, episode_id: str, performance: float) -> list[Message]:
        """Scored before finished: topics keep no order between them."""
        trajectory = await self.blobs.put(f"trajectory of {episode_id}".encode(), "application/arrow")
        score = score_pb2.Score(performance=performance, failure_class="solved" if performance >= 0.5 else "wrong")
        return [
            reward_pb2.EpisodeScored(episode_id=episode_id, run_id="r", score=score),
            gateway_pb2.TrajectorySealed(episode_id=episode_id, run_id="r", trajectory=trajectory, sampled_tokens=9),
            rollout_pb2.EpisodeFinished(
                episode_id=episode_id, run_id="r", outcome=task_pb2.OUTCOME_COMPLETED, agent_wall_s=1.5
            ),
        ]

    async def train(self, step: int, *episodes: report_pb2.EpisodeReport) -> None:
        """A step, with the trainer's report, and its policy."""
        report = report_pb2.StepReport(run_id="r", step=step, episodes=episodes)
        ref = await self.blobs.put(report.SerializeToString(), "application/protobuf")
        await self.feed(
            trainer_pb2.StepCompleted(run_id="r", step=step, report=ref),
            trainer_pb2.PolicyPublished(run_id="r", step=step),
        )

    def wait(self, seconds: float) -> None:
        """Time passes on the manual clock."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)


def submitted(episode_id: str, group_id: str = "", *, pinned_step: int | None = None) -> gateway_pb2.EpisodeSubmitted:
    """A submission to run r."""
    return gateway_pb2.EpisodeSubmitted(
        episode_id=episode_id,
        run_id="r",
        group_id=group_id,
        domain="tool",
        kind=task_pb2.EPISODE_KIND_TRAIN if pinned_step is None else task_pb2.EPISODE_KIND_EVALUATION,
        pinned_step=pinned_step,
    )


def group(group_id: str) -> list[gateway_pb2.EpisodeSubmitted]:
    """A group of two."""
    return [submitted(f"{group_id}.{member}", group_id) for member in range(2)]


def after(seconds: float) -> datetime:
    """A moment of the bench's clock."""
    return START + timedelta(seconds=seconds)
