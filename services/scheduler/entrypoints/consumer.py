"""Translates events of the other services into the scheduler's inputs; refuses events that it does not know."""

from collections.abc import Sequence

from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, trainer_pb2
from google.protobuf.message import Message

from services.contract.scheduling_spec import AUTO_WINDOW
from services.kernel.clock import Clock
from services.kernel.envelope import Event
from services.kernel.errors import Permanent
from services.kernel.event_store import Write
from services.kernel.logs import get_logger
from services.scheduler.application import Scheduler
from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.ports import Reports

TOPICS = (
    "forgerl.gateway.run.v1",
    "forgerl.gateway.episode.v1",
    "forgerl.rollout.episode.v1",
    "forgerl.reward.score.v1",
    "forgerl.trainer.policy.v1",
)
_SELECTIONS = {
    run_pb2.SELECTION_POLICY_WINDOWED_FIFO: "windowed_fifo",
    run_pb2.SELECTION_POLICY_STRICT_FIFO: "strict_fifo",
    run_pb2.SELECTION_POLICY_GREEDY: "greedy",
    run_pb2.SELECTION_POLICY_VERSION_WINDOW: "version_window",
}
_MODES = {run_pb2.SCHEDULING_MODE_ROLLING: "rolling", run_pb2.SCHEDULING_MODE_COHORT: "cohort"}


class Consumer:
    """Handles all topics that the scheduler reads."""

    def __init__(self, scheduler: Scheduler, reports: Reports, clock: Clock) -> None:
        self._scheduler, self._reports, self._clock = scheduler, reports, clock

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """One commit for all of them. Raises Permanent for what can't be understood."""
        now_s = self._clock.now().timestamp()
        inputs: list[tuple[str, facts.Input]] = []
        for event in events:
            fact = await self._fact(event)
            if fact is None:
                raise Permanent(f"{event.id}: the scheduler does not know {type(event.message).__name__}")
            run_id: str = getattr(event.message, "run_id", "")
            if not run_id:
                raise Permanent(f"{event.id}: run_id is empty")
            inputs.append((run_id, facts.Input(now_s, fact, event.id, event.time.timestamp())))
        return await self._scheduler.take(inputs)

    async def _fact(self, event: Event) -> facts.Fact | None:
        message = event.message
        match message:
            case trainer_pb2.StepCompleted():
                return facts.StepDone(message.step, await self._report(message))
            case gateway_pb2.EpisodeSubmitted():
                return _submitted(message, event)
            case gateway_pb2.RunCreated():
                try:
                    return facts.RunOpened(run_config(message.spec))
                except ValueError as error:
                    raise Permanent(f"{event.id}: {error}") from error
            case _:
                return _run_fact(message) or _episode_fact(message)

    async def _report(self, completed: trainer_pb2.StepCompleted) -> tuple[facts.TrainedEpisode, ...]:
        try:
            return await self._reports.episodes(completed.report)
        except Permanent as error:
            # The step was trained all the same, and the run must go on.
            get_logger().warning("report.unreadable", run_id=completed.run_id, step=completed.step, error=error.message)
            return ()


def run_config(spec: run_pb2.RunSpec) -> RunConfig:
    """The schedule of a resolved run file. Raises ValueError."""
    scheduling = spec.scheduling
    return RunConfig(
        domains=tuple((domain.name, domain.weight) for domain in spec.domains),
        group_size=scheduling.group_size,
        items_per_batch=scheduling.items_per_batch,
        queue_items=scheduling.queue_items,
        window_items=scheduling.window_items,
        in_flight_items=scheduling.in_flight_items,
        lookahead_steps=scheduling.lookahead_steps,
        deadline_s=scheduling.deadline_s,
        max_staleness_steps=scheduling.max_staleness_steps,
        min_reward_spread=spec.training.min_reward_spread,
        end_steps=spec.end.steps,
        selection=_SELECTIONS.get(scheduling.policy, str(scheduling.policy)),
        owed_items=scheduling.queue_items,
        mode=_MODES.get(scheduling.mode, str(scheduling.mode)),
        version_window_steps=scheduling.version_window_steps,
        window_auto=scheduling.window == AUTO_WINDOW,
        drift_bound=scheduling.drift_bound,
        keep_steps=scheduling.keep_steps,
        # Resolved by a gateway from before runs shared the fleet: an equal share.
        fleet_weight=scheduling.fleet_weight if scheduling.HasField("fleet_weight") else 1.0,
    )


def _submitted(message: gateway_pb2.EpisodeSubmitted, event: Event) -> facts.Submitted:
    pinned = message.pinned_step if message.kind == task_pb2.EPISODE_KIND_EVALUATION else None
    return facts.Submitted(
        episode_id=message.episode_id,
        group_id=message.group_id,
        domain=message.domain,
        pinned_step=pinned,
        correlation_id=event.cause.correlation_id,
        traceparent=event.cause.traceparent,
    )


def _run_fact(message: Message) -> facts.Fact | None:
    match message:
        case gateway_pb2.RunEnded():
            return facts.RunEnded(message.reason)
        case gateway_pb2.RunResumed():
            return facts.RunReopened(message.end.steps)
        case gateway_pb2.RunRemoved():
            return facts.RunRemoved()
        case trainer_pb2.StepFailed():
            return facts.StepFailed(message.step, message.detail)
        case trainer_pb2.PolicyPublished():
            return facts.PolicyPublished(message.step)
        case _:
            return None


def _episode_fact(message: Message) -> facts.Fact | None:
    match message:
        case gateway_pb2.EpisodeCancelled():
            return facts.Cancelled(message.episode_id, message.reason)
        case gateway_pb2.TrajectorySealed():
            trajectory = message.trajectory.SerializeToString(deterministic=True)
            return facts.Sealed(
                message.episode_id,
                trajectory,
                message.sampled_tokens,
                message.first_policy_step,
                turn_count=message.turn_count,
                branch_count=message.branch_count,
                last_policy_step=message.last_policy_step,
            )
        case rollout_pb2.EpisodeStarted():
            return facts.Started(message.episode_id)
        case rollout_pb2.EpisodeFinished():
            return facts.Finished(message.episode_id, message.outcome, message.agent_wall_s)
        case rollout_pb2.EpisodeFailed():
            cancelled = message.outcome == task_pb2.OUTCOME_CANCELLED
            return facts.Failed(message.episode_id, message.outcome, cancelled, message.detail)
        case reward_pb2.EpisodeScored():
            score = message.score
            payload = score.SerializeToString(deterministic=True)
            return facts.Scored(message.episode_id, score.performance, score.failure_class, payload)
        case reward_pb2.ScoringFailed():
            return facts.ScoringFailed(message.episode_id, message.detail)
        case _:
            return None
