"""The service itself, driven with recorded durations, against the simulation of the same: decisions must be equal.

The service is its application on a real SQLite store and real blobs, fed through its consumer and its inbox; the world
around it hears only what it publishes. The clock is set, since two runs on a wall clock are never alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path

from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message

from loadtests.scheduler.platform import START_US, Imagined, names, performance
from services.contract.run_spec import resolve
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.scheduler.adapters.journal import StoredJournal
from services.scheduler.adapters.reports import BlobReports
from services.scheduler.bootstrap import EVENT_MODULES, SERVICE, build_scheduler
from services.scheduler.domain import facts
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import first_tick_us, what_if
from services.scheduler.entrypoints.consumer import Consumer, run_config

RUN = "live"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# When an input was taken, what it was about, and what was decided on it.
Step = tuple[float, str, tuple[Decision, ...]]


class SetClock:
    """A clock that shows the microsecond it was set to."""

    def __init__(self) -> None:
        self.now_us = START_US

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now_us)

    def monotonic(self) -> float:
        return self.now_us / 1e6


@dataclass(frozen=True, slots=True)
class Recording:
    """What both are driven with: a resolved run, microseconds by episode and of a training step."""

    spec: run_pb2.RunSpec
    durations_us: Sequence[int]
    step_us: int


def recording(durations_us: Sequence[int], step_us: int, scheduling: run_pb2.SchedulingSpec) -> Recording:
    """A run of one domain."""
    spec = run_pb2.RunSpec(domains=[run_pb2.DomainSpec(name="agent")], scheduling=scheduling)
    return Recording(resolve(spec), durations_us, step_us)


def simulated(recorded: Recording) -> list[Step]:
    """The simulator's steps."""
    platform = Imagined(run_config(recorded.spec), recorded.durations_us, recorded.step_us)
    return [_step(taken, decisions) for taken, decisions in what_if(platform, State())]


def _step(taken: facts.Input, decisions: Sequence[Decision]) -> Step:
    fact = taken.fact
    about = getattr(fact, "episode_id", "") or getattr(fact, "step", "")
    return taken.taken_at_s, f"{type(fact).__name__} {about}".strip(), tuple(decisions)


class Live:
    """The service and its world."""

    def __init__(self, folder: Path, recorded: Recording) -> None:
        self._recorded, self._clock = recorded, SetClock()
        self._group_size = recorded.spec.scheduling.group_size
        self._catalogue = Catalogue.from_modules(EVENT_MODULES)
        self._blobs = Blobs.open(f"file://{folder}/blobs")
        self._store = EventStore.open(f"sqlite:///{folder}/scheduler.db", self._catalogue, self._clock)
        self._scheduler = build_scheduler(self._store, self._blobs, self._catalogue, self._clock)
        self._consumer = Consumer(self._scheduler, BlobReports(self._blobs), self._clock)
        self._inbox = Inbox(self._store, SERVICE)
        self._versions: dict[str, int] = {}
        self._agenda: list[tuple[int, int, tuple[Message, ...]]] = []
        self._planned = self._submitted = self._heard = self._step = 0
        self._running: dict[str, set[str]] = {}
        self._over: set[str] = set()
        self._trained_us = START_US

    async def steps(self) -> list[Step]:
        """Drive the service until nothing more happens; what its journal then holds."""
        created = gateway_pb2.RunCreated(run_id=RUN, spec=self._recorded.spec)
        self._plan(START_US, created, trainer_pb2.PolicyPublished(run_id=RUN, step=0))
        for _ in range(self._recorded.spec.scheduling.in_flight_items + 1):
            self._submit()
        while self._agenda or self._scheduler.next_deadline_s() is not None:
            await self._next()
        entries = await StoredJournal(self._store).read(RUN, 0)
        await self._store.close()
        return [_step(entry.taken, entry.decisions) for entry in entries]

    async def _next(self) -> None:
        deadline_s = self._scheduler.next_deadline_s()
        if deadline_s is not None and (not self._agenda or first_tick_us(deadline_s) <= self._agenda[0][0]):
            self._clock.now_us = first_tick_us(deadline_s)
            await self._scheduler.tick()
        else:
            self._clock.now_us, _, messages = heappop(self._agenda)
            messages = tuple(message for message in messages if getattr(message, "episode_id", "") not in self._over)
            if messages and isinstance(messages[-1], trainer_pb2.PolicyPublished):
                self._step = messages[-1].step
            await self._inbox.handle([self._event(message) for message in messages], self._consumer.handle)
        await self._hear()

    async def _hear(self) -> None:
        """React to all that was published since."""
        while published := await self._store.notifications(self._heard, 1000):
            self._heard = published[-1][0]
            for _, event in published:
                await self._react(event.message)

    async def _react(self, message: Message) -> None:
        match message:
            case scheduler_pb2.EpisodeAdmitted():
                await self._run(message)
            case scheduler_pb2.EpisodeRevoked():
                self._over.add(message.episode_id)
            case scheduler_pb2.BatchAssembled():
                await self._train(message.batch)
            case _:
                pass

    async def _run(self, admitted: scheduler_pb2.EpisodeAdmitted) -> None:
        number, member = (int(part) for part in admitted.episode_id.split("."))
        duration_us = self._recorded.durations_us[number * self._group_size + member]
        name = admitted.episode_id
        trajectory = await self._blobs.put(name.encode(), "application/arrow")
        score = score_pb2.Score(performance=performance(number, member), failure_class="solved")
        outcome = task_pb2.OUTCOME_COMPLETED
        self._plan(
            self._clock.now_us + duration_us,
            rollout_pb2.EpisodeFinished(episode_id=name, run_id=RUN, outcome=outcome, agent_wall_s=duration_us / 1e6),
            gateway_pb2.TrajectorySealed(
                episode_id=name, run_id=RUN, trajectory=trajectory, sampled_tokens=1, first_policy_step=self._step
            ),
            reward_pb2.EpisodeScored(episode_id=name, run_id=RUN, score=score),
        )
        # A group is replaced when its last member is admitted.
        group = self._running.setdefault(admitted.group_id, set())
        group.add(name)
        if len(group) == self._group_size:
            self._submit()

    async def _train(self, batch: int) -> None:
        self._trained_us = max(self._trained_us, self._clock.now_us) + self._recorded.step_us
        report = report_pb2.StepReport(run_id=RUN, step=batch).SerializeToString()
        ref = await self._blobs.put(report, "application/protobuf")
        self._plan(self._trained_us, trainer_pb2.StepCompleted(run_id=RUN, step=batch, report=ref))
        self._plan(self._trained_us, trainer_pb2.PolicyPublished(run_id=RUN, step=batch))

    def _submit(self) -> None:
        number, size = self._submitted, self._group_size
        if (number + 1) * size > len(self._recorded.durations_us):
            return
        self._submitted += 1
        submitted = [
            gateway_pb2.EpisodeSubmitted(
                episode_id=name, run_id=RUN, group_id=str(number), domain="agent", kind=task_pb2.EPISODE_KIND_TRAIN
            )
            for name in names(number, size)
        ]
        self._plan(self._clock.now_us, *submitted)

    def _plan(self, at_us: int, *messages: Message) -> None:
        heappush(self._agenda, (at_us, self._planned, messages))
        self._planned += 1

    def _event(self, message: Message) -> Event:
        stream = self._catalogue.stream_of(message)
        self._versions[stream] = self._versions.get(stream, 0) + 1
        return Event(stream, self._versions[stream], self._clock.now(), message, Cause("", "", ""))


def difference(live: Sequence[Step], imagined: Sequence[Step]) -> str:
    """The first step at which they part; empty when they are equal, bit for bit."""
    for index, (ours, theirs) in enumerate(zip(live, imagined, strict=False)):
        if ours != theirs:
            return f"step {index}: live {ours}; simulated {theirs}"
    return "" if len(live) == len(imagined) else f"live took {len(live)} inputs, the simulator {len(imagined)}"
