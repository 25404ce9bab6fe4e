"""What the gateway knows of one run, and when a run has reached its end.

It refuses to count by itself: steps and consumed episodes are what trainer and scheduler said.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from forgerl.common.v1 import run_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2
from forgerl.gateway.v1 import run_service_pb2 as api
from google.protobuf.message import Message

TARGET_STEPS = 10
"""Steps over which the mean training reward is compared with the target."""
REWARD_METRIC = "reward_mean"


@dataclass(slots=True)
class Run:
    """Changed only by `apply`."""

    run_id: str = ""
    spec: run_pb2.RunSpec = field(default_factory=run_pb2.RunSpec)
    state: api.RunState = api.RUN_STATE_UNSPECIFIED
    end_reason: str = ""
    created_at: datetime | None = None
    # When it was created or last taken up again: time_s counts from here.
    begun_at: datetime | None = None
    ended_at: datetime | None = None
    policy: record_pb2.PolicyObserved | None = None
    steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    failure: str = ""
    episodes_consumed: int = 0
    _batches: dict[int, int] = field(default_factory=dict[int, int])
    _rewards: deque[float] = field(default_factory=lambda: deque[float](maxlen=TARGET_STEPS))

    def apply(self, message: Message, time: datetime) -> None:
        """Take one event of `gateway.run/<run>` or `gateway.progress/<run>` in."""
        match message:
            case gateway_pb2.RunCreated():
                self.run_id, self.spec = message.run_id, message.spec
                self.created_at, self.begun_at = time, time
                self.state = api.RUN_STATE_RUNNING
            case gateway_pb2.RunEnded():
                self.state, self.end_reason, self.ended_at = api.RUN_STATE_ENDED, message.reason, time
            case gateway_pb2.RunResumed():
                spec = run_pb2.RunSpec()
                spec.CopyFrom(self.spec)
                spec.end.CopyFrom(message.end)
                self.spec, self.begun_at = spec, time
                self.state, self.end_reason, self.ended_at, self.failure = api.RUN_STATE_RUNNING, "", None, ""
            case gateway_pb2.RunRemoved():
                self.state = api.RUN_STATE_REMOVED
            case record_pb2.RunObserved():
                self._observe(message)
            case _:
                pass

    def _observe(self, seen: record_pb2.RunObserved) -> None:
        match seen.WhichOneof("fact"):
            case "step":
                self.steps = max(self.steps, seen.step.step)
                self.metrics = dict(seen.step.metrics)
                self.episodes_consumed += self._batches.pop(seen.step.step, 0)
                if REWARD_METRIC in self.metrics:
                    self._rewards.append(self.metrics[REWARD_METRIC])
            case "policy":
                if self.policy is None or seen.policy.step >= self.policy.step:
                    self.policy = seen.policy
            case "step_failed":
                self.failure = seen.step_failed
            case "batch":
                # Trained when its step is completed; a batch that comes after its step counts at once.
                if seen.batch.batch <= self.steps:
                    self.episodes_consumed += seen.batch.episodes
                else:
                    self._batches[seen.batch.batch] = seen.batch.episodes
            case "episodes_dropped":
                self.episodes_consumed += seen.episodes_dropped
            case _:
                pass

    @property
    def running(self) -> bool:
        """Whether it still trains."""
        return self.state == api.RUN_STATE_RUNNING

    def deadline(self) -> datetime | None:
        """When its time is up; None without such an end."""
        if not self.running or self.begun_at is None or not self.spec.end.HasField("time_s"):
            return None
        return self.begun_at + timedelta(seconds=self.spec.end.time_s)

    def reached(self, now: datetime) -> str:
        """The end that a running run has reached, as `RunEnded.reason` names it; "" when none."""
        end, deadline = self.spec.end, self.deadline()
        if not self.running:
            return ""
        if end.HasField("steps") and self.steps >= end.steps:
            return "steps"
        if end.HasField("episodes") and self.episodes_consumed >= end.episodes:
            return "episodes"
        if deadline is not None and now >= deadline:
            return "time"
        full = len(self._rewards) == TARGET_STEPS
        if end.HasField("target_reward") and full and sum(self._rewards) / TARGET_STEPS >= end.target_reward:
            return "target"
        return ""
