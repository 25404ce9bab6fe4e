"""What the scheduler can be told: one class a kind of input; refuses to interpret the payloads that it only carries.

Payloads (`trajectory`, `score`) are serialised messages that go unread from the event to the batch's manifest.
"""

from dataclasses import dataclass

from services.scheduler.domain.config import RunConfig


@dataclass(frozen=True, slots=True)
class RunOpened:
    """The run exists and this is its schedule."""

    config: RunConfig


@dataclass(frozen=True, slots=True)
class RunEnded:
    """No more batches; evaluation goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunReopened:
    """Training goes on, until step `end_steps` (0 = no such end)."""

    end_steps: int


@dataclass(frozen=True, slots=True)
class RunRemoved:
    """Nothing of the run is wanted any more."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An episode wants to run; with a `pinned_step` it is an evaluation."""

    episode_id: str
    group_id: str
    domain: str
    pinned_step: int | None = None
    correlation_id: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Its user called the episode off."""

    episode_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The trajectory is complete."""

    episode_id: str
    trajectory: bytes
    sampled_tokens: int
    first_policy_step: int
    turn_count: int = 0
    branch_count: int = 0
    last_policy_step: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The agent began; known for the ledger only."""

    episode_id: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent's part is over and is data; `outcome` is the number of forgerl.common.v1.Outcome."""

    episode_id: str
    outcome: int
    agent_wall_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The episode can't be trained. `cancelled`: somebody called it off; else the infrastructure failed."""

    episode_id: str
    outcome: int
    cancelled: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """The verifier's verdict, performance in [0, 1]."""

    episode_id: str
    performance: float
    failure_class: str
    score: bytes


@dataclass(frozen=True, slots=True)
class ScoringFailed:
    """The verifier raised: no score, unless one comes later."""

    episode_id: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TrainedEpisode:
    """What a step did with an episode; `loss_weight` is its share of the step's loss."""

    episode_id: str
    trained: bool
    why_not: str
    mean_advantage: float
    trained_tokens: int
    total_reward: float
    loss_weight: float = 0.0
    masked_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepDone:
    """Batch `step` was trained; without a report, all its eligible episodes count as trained."""

    step: int
    episodes: tuple[TrainedEpisode, ...]


@dataclass(frozen=True, slots=True)
class StepFailed:
    """Training of batch `step` was refused for good."""

    step: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PolicyPublished:
    """Engines will serve this step from now on."""

    step: int


@dataclass(frozen=True, slots=True)
class FleetShared:
    """The run may have so many episodes in flight at a time, since it shares the fleet; 0 = no such bound."""

    episodes: int


@dataclass(frozen=True, slots=True)
class TrajectoriesPruned:
    """Recorded before pruning was a decision: somebody frees these episodes' trajectories."""

    episode_ids: tuple[str, ...]
    keep_steps: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PruningRequested:
    """Somebody asks for all to be pruned that closed `keep_steps` steps ago, or longer."""

    keep_steps: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """A deadline is due; the time is the input's own."""


Fact = (
    RunOpened
    | RunEnded
    | RunReopened
    | RunRemoved
    | Submitted
    | Cancelled
    | Sealed
    | Started
    | Finished
    | Failed
    | Scored
    | ScoringFailed
    | StepDone
    | StepFailed
    | PolicyPublished
    | FleetShared
    | TrajectoriesPruned
    | PruningRequested
    | Ticked
)


@dataclass(frozen=True, slots=True)
class Input:
    """A fact, the event that brought it (`stream@version`, empty for a tick), and when it was taken (seconds since
    1970).
    """

    taken_at_s: float
    fact: Fact
    event_id: str = ""
    occurred_at_s: float = 0.0
