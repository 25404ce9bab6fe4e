"""What the gateway learns from the other services: views, ends of runs, and the seals.

It refuses to answer on the bus: what it decides becomes events of its own streams, in the transaction of the inbox.
"""

from collections.abc import Sequence

from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.gateway.v1 import record_pb2
from google.protobuf.message import Message

from services.gateway.folds import Batch, Folds, progress_stream, run_stream, view_stream
from services.gateway.sealer import Sealer
from services.kernel.clock import Clock
from services.kernel.envelope import Event
from services.kernel.errors import NotFound
from services.kernel.event_store import Write
from services.kernel.logs import get_logger

TOPICS = (
    "forgerl.trainer.policy.v1",
    "forgerl.scheduler.batch.v1",
    "forgerl.scheduler.admission.v1",
    # Not for this handler: freeing.py shares its subscription.
    "forgerl.scheduler.retention.v1",
    "forgerl.rollout.episode.v1",
    "forgerl.reward.score.v1",
)


_ENDINGS = (rollout_pb2.EpisodeFinished, rollout_pb2.EpisodeFailed, scheduler_pb2.EpisodeRevoked)


class Intake:
    """The handler of all topics that the gateway consumes."""

    def __init__(self, folds: Folds, sealer: Sealer, clock: Clock) -> None:
        self._folds, self._sealer, self._clock = folds, sealer, clock

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """What new events make the gateway write."""
        batch, runs = self._folds.batch(), dict[str, None]()
        ending = [event.key for event in events if isinstance(event.message, _ENDINGS)]
        views = {view_stream(event.key) for event in events if _progress(event.message) is None}
        await batch.load(*self._sealer.streams(ending, views))
        for event in events:
            progress = _progress(event.message)
            if progress is not None:
                await self._observe_run(batch, event, progress)
                runs[event.key] = None
                continue
            seen = _observation(event.message)
            if seen is not None:
                await self._observe_episode(batch, event, seen)
        for run_id in runs:
            await self._end(batch, run_id)
        return batch.writes()

    async def _observe_run(self, batch: Batch, event: Event, seen: record_pb2.RunObserved) -> None:
        seen.time.FromDatetime(event.time)
        await batch.add_blind(progress_stream(event.key), seen)

    async def _observe_episode(self, batch: Batch, event: Event, seen: record_pb2.EpisodeObserved) -> None:
        seen.time.FromDatetime(event.time)
        await batch.add_blind(view_stream(event.key), seen)
        fact = seen.WhichOneof("fact")
        if fact in ("finished", "failed", "revoked_reason"):
            await self._sealer.seal(batch, event.key, str(fact))

    async def _end(self, batch: Batch, run_id: str) -> None:
        try:
            run = await self._folds.run(run_id, batch)
        except NotFound:
            get_logger().warning("run.unknown", run_id=run_id)
            return
        reason = run.reached(self._clock.now())
        if reason:
            await batch.add_blind(run_stream(run_id), gateway_pb2.RunEnded(run_id=run_id, reason=reason))
            get_logger().info("run.ended", run_id=run_id, reason=reason)


def _progress(message: Message) -> record_pb2.RunObserved | None:
    match message:
        case trainer_pb2.StepCompleted():
            step = record_pb2.StepObserved(step=message.step, metrics=message.metrics)
            return record_pb2.RunObserved(step=step)
        case trainer_pb2.PolicyPublished():
            policy = record_pb2.PolicyObserved(step=message.step, digest=message.digest, uri=message.uri)
            return record_pb2.RunObserved(policy=policy)
        case trainer_pb2.StepFailed():
            return record_pb2.RunObserved(step_failed=message.detail or f"step {message.step} failed")
        case scheduler_pb2.BatchAssembled():
            seen = record_pb2.BatchObserved(batch=message.batch, episodes=message.episode_count)
            return record_pb2.RunObserved(batch=seen)
        case scheduler_pb2.SampleDropped():
            return record_pb2.RunObserved(episodes_dropped=len(message.episode_ids))
        case _:
            return None


def _observation(message: Message) -> record_pb2.EpisodeObserved | None:
    seen = record_pb2.EpisodeObserved
    match message:
        case scheduler_pb2.EpisodeAdmitted():
            return seen(admitted=record_pb2.AdmissionObserved(deadline=message.deadline))
        case scheduler_pb2.EpisodeRevoked():
            return seen(revoked_reason=message.reason or "revoked")
        case rollout_pb2.EpisodeStarted():
            return seen(started_agent=message.agent or "agent")
        case rollout_pb2.EpisodeFinished():
            answer = message.answer if not message.HasField("answer_blob") else message.answer_blob.uri
            outcome = record_pb2.OutcomeObserved(
                outcome=message.outcome, answer=answer, agent_wall_s=message.agent_wall_s
            )
            return seen(finished=outcome)
        case rollout_pb2.EpisodeFailed():
            outcome = message.outcome or task_pb2.OUTCOME_INFRA
            return seen(failed=record_pb2.OutcomeObserved(outcome=outcome, detail=message.detail))
        case reward_pb2.EpisodeScored():
            return seen(scored=message.score)
        case reward_pb2.ScoringFailed():
            return seen(scoring_failed=message.detail or "the verifier raised")
        case _:
            return None
