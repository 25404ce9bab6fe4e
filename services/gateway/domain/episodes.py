"""What the gateway knows of one episode: the fold of its published stream and of what was observed elsewhere.

It refuses to decide about training: that is the scheduler's and the reward service's.
"""

from dataclasses import dataclass, field
from datetime import datetime

from forgerl.common.v1 import score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2 as api
from forgerl.gateway.v1 import record_pb2
from google.protobuf.message import Message

_BEFORE = (api.EPISODE_STATE_SUBMITTED, api.EPISODE_STATE_ADMITTED, api.EPISODE_STATE_STARTED)
_ENDED_BADLY = (api.EPISODE_STATE_FAILED, api.EPISODE_STATE_CANCELLED)


@dataclass(slots=True)
class Episode:
    """Changed only by `apply`, with events in the order of their streams; the two streams may interleave anyhow."""

    submitted: gateway_pb2.EpisodeSubmitted = field(default_factory=gateway_pb2.EpisodeSubmitted)
    sealed: gateway_pb2.TrajectorySealed | None = None
    state: api.EpisodeState = api.EPISODE_STATE_UNSPECIFIED
    outcome: task_pb2.Outcome = task_pb2.OUTCOME_UNSPECIFIED
    answer: str = ""
    detail: str = ""
    agent: str = ""
    agent_wall_s: float = 0.0
    score: score_pb2.Score | None = None
    submitted_at: datetime | None = None
    changed_at: datetime | None = None
    cancelled: bool = False
    started: bool = False

    @property
    def over(self) -> bool:
        """Nothing more is expected."""
        if self.state == api.EPISODE_STATE_SCORED:
            return True
        return self.state in _ENDED_BADLY and (self.sealed is not None or not self.started)

    def apply(self, message: Message, time: datetime) -> None:
        """Take one event in; unknown ones change nothing but the time."""
        self.changed_at = max(self.changed_at, time) if self.changed_at else time
        match message:
            case gateway_pb2.EpisodeSubmitted():
                self.submitted, self.submitted_at = message, time
                # Nothing runs one that was run elsewhere, so nobody says that it starts.
                self.agent = "recorded" if message.HasField("recorded") else self.agent
                self._move(api.EPISODE_STATE_SUBMITTED, only_from=(api.EPISODE_STATE_UNSPECIFIED,))
            case gateway_pb2.EpisodeCancelled():
                self.cancelled = True
                self._end(task_pb2.OUTCOME_CANCELLED, message.reason)
            case gateway_pb2.TrajectorySealed():
                self.sealed = message
                self._move(api.EPISODE_STATE_SEALED, only_from=(*_BEFORE, api.EPISODE_STATE_FINISHED))
            case record_pb2.EpisodeObserved():
                self._observe(message)
            case _:
                pass

    def _observe(self, seen: record_pb2.EpisodeObserved) -> None:
        match seen.WhichOneof("fact"):
            case "admitted":
                self._move(api.EPISODE_STATE_ADMITTED, only_from=(0, api.EPISODE_STATE_SUBMITTED))
            case "started_agent":
                self.agent, self.started = seen.started_agent, True
                self._move(api.EPISODE_STATE_STARTED, only_from=(0, *_BEFORE))
            case "finished":
                self.outcome, self.answer = seen.finished.outcome, seen.finished.answer
                self.agent_wall_s = seen.finished.agent_wall_s
                self._move(api.EPISODE_STATE_FINISHED, only_from=(0, *_BEFORE))
            case "failed":
                self._end(seen.failed.outcome, seen.failed.detail)
            case "revoked_reason":
                self._end(task_pb2.OUTCOME_CANCELLED, seen.revoked_reason)
            case "scored":
                self.score, self.detail = seen.scored, seen.scored.detail
                self._move(api.EPISODE_STATE_SCORED, only_from=None)
            case "scoring_failed":
                self.detail = seen.scoring_failed
                self._move(api.EPISODE_STATE_FAILED, only_from=(api.EPISODE_STATE_FINISHED, api.EPISODE_STATE_SEALED))
            case _:
                pass

    def _end(self, outcome: task_pb2.Outcome, detail: str) -> None:
        if self.state in (*_ENDED_BADLY, api.EPISODE_STATE_SCORED):
            return
        cancelled = outcome == task_pb2.OUTCOME_CANCELLED
        self.outcome, self.detail = outcome, detail
        self.state = api.EPISODE_STATE_CANCELLED if cancelled else api.EPISODE_STATE_FAILED

    def _move(self, state: api.EpisodeState, only_from: tuple[int, ...] | None) -> None:
        if only_from is None or self.state in only_from:
            self.state = state
