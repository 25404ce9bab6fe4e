"""The world around a scheduler that is really run: it submits, lets episodes take as long as the recording says, seals,
scores and trains, at set times. Refuses to decide, and to know how the scheduler is reached: subclasses do.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message

from loadtests.scheduler.platform import START_US, names, performance
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.scheduler.domain.what_if import first_tick_us

RUN = "live"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


class World(ABC):
    """All other services; `clock` is the scheduler's as well."""

    def __init__(self, recorded: Recording, catalogue: Catalogue, blobs: Blobs) -> None:
        self.clock = SetClock()
        self.catalogue, self.blobs = catalogue, blobs
        self._recorded = recorded
        self._group_size = recorded.spec.scheduling.group_size
        self._versions: dict[str, int] = {}
        self._agenda: list[tuple[int, int, tuple[Message, ...]]] = []
        self._planned = self._submitted = self._step = 0
        self._running: dict[str, set[str]] = {}
        self._over: set[str] = set()
        self._trained_us = START_US

    @abstractmethod
    async def deliver(self, events: Sequence[Event]) -> None:
        """Give the scheduler events, in order; returns once it has taken them and their consequences were told to
        `react`.
        """

    @abstractmethod
    async def tick(self) -> None:
        """The clock shows a deadline: let the scheduler see it; returns as `deliver` does."""

    @abstractmethod
    def next_deadline_s(self) -> float | None:
        """When the scheduler will want to look at its clock; None: it waits for nothing."""

    async def live(self) -> None:
        """Drive the scheduler until nothing more happens."""
        created = gateway_pb2.RunCreated(run_id=RUN, spec=self._recorded.spec)
        self._plan(START_US, created, trainer_pb2.PolicyPublished(run_id=RUN, step=0))
        for _ in range(self._recorded.spec.scheduling.in_flight_items + 1):
            self._submit()
        while self._agenda or self.next_deadline_s() is not None:
            await self._next()

    async def _next(self) -> None:
        deadline_s = self.next_deadline_s()
        if deadline_s is not None and (not self._agenda or first_tick_us(deadline_s) <= self._agenda[0][0]):
            self.clock.now_us = first_tick_us(deadline_s)
            await self.tick()
            return
        self.clock.now_us, _, messages = heappop(self._agenda)
        messages = tuple(message for message in messages if getattr(message, "episode_id", "") not in self._over)
        if messages and isinstance(messages[-1], trainer_pb2.PolicyPublished):
            self._step = messages[-1].step
        if messages:
            await self.deliver([self._event(message) for message in messages])

    async def react(self, message: Message) -> None:
        """What a published message leads to."""
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
        trajectory = await self.blobs.put(name.encode(), "application/arrow")
        score = score_pb2.Score(performance=performance(number, member), failure_class="solved")
        outcome = task_pb2.OUTCOME_COMPLETED
        self._plan(
            self.clock.now_us + duration_us,
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
        self._trained_us = max(self._trained_us, self.clock.now_us) + self._recorded.step_us
        report = report_pb2.StepReport(run_id=RUN, step=batch).SerializeToString()
        ref = await self.blobs.put(report, "application/protobuf")
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
        self._plan(self.clock.now_us, *submitted)

    def _plan(self, at_us: int, *messages: Message) -> None:
        heappush(self._agenda, (at_us, self._planned, messages))
        self._planned += 1

    def _event(self, message: Message) -> Event:
        stream = self.catalogue.stream_of(message)
        self._versions[stream] = self._versions.get(stream, 0) + 1
        return Event(stream, self._versions[stream], self.clock.now(), message, Cause("", "", ""))
