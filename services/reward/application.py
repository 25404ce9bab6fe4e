"""Notes what comes of an episode, in any order, and scores it once everything is there.

A batch of events is one commit. A verifier that fails is told as ScoringFailed, never as a zero. It refuses to score
what failed or was cancelled.
"""

import asyncio
from collections.abc import Sequence

from forgerl.common.v1 import task_pb2
from forgerl.common.v1.score_pb2 import Score
from forgerl.events.v1.gateway_pb2 import EpisodeCancelled, EpisodeSubmitted, TrajectorySealed
from forgerl.events.v1.reward_pb2 import EpisodeScored, ScoringFailed
from forgerl.events.v1.rollout_pb2 import EpisodeFailed, EpisodeFinished
from forgerl.reward.v1.case_pb2 import AnswerNoted, CaseDecided, CaseDismissed, TaskNoted, TrajectoryNoted
from google.protobuf.message import Message
from opentelemetry import trace

from services.contract.outcomes import class_of_outcome, class_of_verdict, treatment
from services.contract.trajectory import MalformedTrajectory, Trajectory, view_messages
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.errors import Permanent
from services.kernel.event_store import EventStore, Write
from services.kernel.logs import get_logger
from services.kernel.telemetry import use_parent
from services.reward.domain.case import Case, fold
from services.reward.domain.scoring import score_of
from services.reward.domain.turns import conversation, messages_of, turns_of
from services.reward.ports import GraderError, Verifier

MAX_DETAIL_CHARS = 500


class Scoring:
    """The one use case."""

    def __init__(self, store: EventStore, blobs: Blobs, verifier: Verifier, tracer: trace.Tracer) -> None:
        self._store = store
        self._blobs = blobs
        self._verifier = verifier
        self._tracer = tracer

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """The writes that answer a batch of events of many episodes."""
        by_episode: dict[str, list[Event]] = {}
        for event in events:
            by_episode.setdefault(event.key, []).append(event)
        known = await self._store.read_many(_stream(key) for key in by_episode)
        answered = await asyncio.gather(
            *(self._note(key, mine, known[_stream(key)]) for key, mine in by_episode.items())
        )
        return [write for writes in answered for write in writes]

    async def _note(self, episode_id: str, events: Sequence[Event], known: Sequence[Event]) -> list[Write]:
        stream, records = _stream(episode_id), [event.message for event in known]
        fresh = [record for event in events if (record := record_of(event.message)) is not None]
        before = fold(records)
        case = fold(fresh, before)
        if not fresh or before.decided:
            return []
        if not case.complete:
            return [Write(stream, len(records), tuple(fresh))]
        with use_parent(events[-1].cause.traceparent), self._tracer.start_as_current_span("episode.score") as span:
            span.set_attribute("episode_id", episode_id)
            decision = await self._decide(episode_id, case)
        return [
            Write(stream, len(records), (*fresh, CaseDecided())),
            Write(f"reward.score/{episode_id}", 0, (decision,)),
        ]

    async def _decide(self, episode_id: str, case: Case) -> Message:
        assert case.task is not None
        run_id = case.task.run_id
        try:
            score = await self._score(episode_id, case)
        except (GraderError, Permanent, MalformedTrajectory) as error:
            detail = (str(error) or type(error).__name__)[:MAX_DETAIL_CHARS]
            get_logger().warning("scoring.failed", episode_id=episode_id, run_id=run_id, detail=detail)
            return ScoringFailed(episode_id=episode_id, run_id=run_id, detail=detail)
        get_logger().debug("episode.scored", episode_id=episode_id, run_id=run_id, performance=score.performance)
        return EpisodeScored(episode_id=episode_id, run_id=run_id, score=score)

    async def _score(self, episode_id: str, case: Case) -> Score:
        assert case.task is not None
        assert case.answer is not None
        trajectory = await self._trajectory(episode_id, case)
        task = case.task.task
        messages = messages_of(trajectory)
        turns = turns_of(trajectory, messages, await self._verifier.tool_names(task))
        fixed = class_of_outcome(case.answer.outcome)
        if fixed is not None:
            performance = treatment(fixed).performance
            if performance is None:
                raise Permanent(f"outcome {fixed.value}: the failure contract gives it no reward")
            return score_of(performance, fixed, f"not judged: {fixed.value}", turns)
        answer = case.answer.answer
        if case.answer.HasField("answer_blob"):
            answer = (await self._blobs.get(case.answer.answer_blob)).decode("utf-8", "replace")
        performance, detail = await self._verifier.verify(task, answer, conversation(trajectory, messages))
        return score_of(performance, class_of_verdict(performance), detail[:MAX_DETAIL_CHARS], turns)

    async def _trajectory(self, episode_id: str, case: Case) -> Trajectory:
        assert case.trajectory is not None
        # No rule reads how a token was sampled, and the gateway has checked that.
        trajectory = view_messages(await self._blobs.get(case.trajectory))
        if trajectory.episode_id != episode_id:
            raise MalformedTrajectory(f"trajectory: given {trajectory.episode_id}'s; allowed {episode_id}'s")
        return trajectory


def _stream(episode_id: str) -> str:
    return f"reward.case/{episode_id}"


def record_of(message: Message) -> Message | None:
    """What a case keeps of an event; None for events that say nothing about scoring."""
    match message:
        case EpisodeSubmitted():
            return TaskNoted(run_id=message.run_id, task=message.task)
        case EpisodeFinished():
            blob = message.answer_blob if message.HasField("answer_blob") else None
            return AnswerNoted(outcome=message.outcome, answer=message.answer, answer_blob=blob)
        case TrajectorySealed():
            return TrajectoryNoted(trajectory=message.trajectory)
        case EpisodeFailed():
            return CaseDismissed(reason=task_pb2.Outcome.Name(message.outcome).removeprefix("OUTCOME_").lower())
        case EpisodeCancelled():
            return CaseDismissed(reason="cancelled")
        case _:
            return None
