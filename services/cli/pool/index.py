"""One row an episode, folded from a run's queue and its steps' reports. It refuses to read stores.

Times are seconds since 1970, UTC; None: it didn't come to that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from forgerl.common.v1 import task_pb2
from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.common.v1.score_pb2 import Score
from forgerl.scheduler.v1 import queue_pb2
from forgerl.trainer.v1.report_pb2 import StepReport


@dataclass(slots=True)
class EpisodeRow:
    """See the module. `state`: queued, in_flight, ended, batched; finally trained, dropped or evaluated.

    `advantages`: one a sampled node of the trajectory, in its order; empty where nothing was trained.
    """

    run_id: str
    episode_id: str
    group_id: str
    domain: str
    kind: str
    pinned_step: int | None = None
    state: str = "queued"
    reason: str | None = None
    submitted_at_s: float = 0.0
    admitted_at_s: float | None = None
    finished_at_s: float | None = None
    sealed_at_s: float | None = None
    scored_at_s: float | None = None
    outcome: str | None = None
    agent_wall_s: float | None = None
    failure_class: str | None = None
    performance: float | None = None
    sampled_tokens: int | None = None
    first_policy_step: int | None = None
    position: int | None = None
    batch: int | None = None
    total_reward: float | None = None
    mean_advantage: float | None = None
    trained_tokens: int | None = None
    loss_weight: float | None = None
    masked_tokens: int | None = None
    staleness_steps: int | None = None
    trajectory: BlobRef | None = None
    score: Score | None = None
    advantages: tuple[float, ...] = ()
    pruned_at_s: float | None = None

    @property
    def readable(self) -> bool:
        """It was sealed, and its trajectory was not pruned."""
        return self.trajectory is not None and self.pruned_at_s is None


@dataclass(slots=True)
class PoolIndex:
    """All episodes of a run, in the order of submission; its groups; how many steps were done; whether it was removed.

    Of a removed run the record of the queue is left.
    """

    run_id: str
    steps: int = 0
    removed: bool = False
    episodes: dict[str, EpisodeRow] = field(default_factory=dict[str, EpisodeRow])
    groups: dict[str, list[EpisodeRow]] = field(default_factory=dict[str, list[EpisodeRow]])

    def take(self, record: queue_pb2.QueueAdvanced) -> None:
        """Fold one record of the queue."""
        match record.WhichOneof("fact"):
            case "submitted":
                self._submitted(record)
            case "sealed" | "finished" | "failed" | "scored" | "scoring_failed" | "cancelled":
                self._told(record)
            case "step_failed":
                self.steps = max(self.steps, int(record.step_failed.step))
            case "pruned":
                self._pruned(record.pruned.episode_ids, record.taken_at_s)
            case "run_removed":
                # Who removes a run frees the trajectories of all its episodes, and the trainer's reports.
                self.removed = True
                self._pruned([row.episode_id for row in self.episodes.values() if row.readable], record.taken_at_s)
            case "step_done":
                self.steps = max(self.steps, int(record.step_done.step))
                for trained in record.step_done.episodes:
                    self._trained(trained)
            case _:
                pass
        for decision in record.decisions:
            self._decided(decision, record.taken_at_s)

    def report(self, report: StepReport) -> None:
        """Take over what the trainer did with each episode of a step."""
        for episode in report.episodes:
            row = self.episodes.get(episode.episode_id)
            if row is None:
                continue
            row.state, row.batch = ("trained" if episode.trained else "dropped"), int(report.step)
            row.reason = episode.why_not or row.reason
            row.total_reward, row.mean_advantage = episode.total_reward, episode.mean_advantage
            row.trained_tokens, row.staleness_steps = episode.trained_tokens, episode.staleness_steps
            row.loss_weight, row.masked_tokens = episode.loss_weight, episode.masked_tokens
            row.advantages = tuple(episode.turn_advantages)

    def _pruned(self, episode_ids: Iterable[str], at_s: float) -> None:
        for episode_id in episode_ids:
            if row := self.episodes.get(episode_id):
                row.pruned_at_s = at_s

    def _submitted(self, record: queue_pb2.QueueAdvanced) -> None:
        told = record.submitted
        if told.episode_id in self.episodes:
            return
        pinned = told.pinned_step if told.HasField("pinned_step") else None
        kind = "train" if pinned is None else "evaluation"
        row = EpisodeRow(self.run_id, told.episode_id, told.group_id, told.domain, kind, pinned)
        row.submitted_at_s = record.occurred_at_s
        self.episodes[told.episode_id] = row
        self.groups.setdefault(told.group_id, []).append(row)

    def _told(self, record: queue_pb2.QueueAdvanced) -> None:
        name = record.WhichOneof("fact") or ""
        fact = getattr(record, name)
        row = self.episodes.get(fact.episode_id)
        if row is None:
            return
        match name:
            case "sealed":
                row.sealed_at_s, row.sampled_tokens = record.occurred_at_s, fact.sampled_tokens
                row.first_policy_step = fact.first_policy_step
                row.trajectory = BlobRef.FromString(fact.trajectory)
                if row.kind == "evaluation":
                    self._ended(row)
            case "finished" | "failed":
                row.finished_at_s, row.outcome = record.occurred_at_s, outcome_name(fact.outcome)
                row.agent_wall_s = fact.agent_wall_s if name == "finished" else None
                self._ended(row)
            case "scored":
                row.scored_at_s, row.performance = record.occurred_at_s, fact.performance
                row.failure_class, row.score = fact.failure_class, Score.FromString(fact.score)
                self._ended(row)
            case "scoring_failed":
                row.failure_class = "grader_error"
                self._ended(row)
            case _:
                row.outcome = row.outcome or "cancelled"

    def _ended(self, row: EpisodeRow) -> None:
        if row.kind == "evaluation":
            row.state = "evaluated" if row.score is not None else row.state
        elif row.state in ("queued", "in_flight"):
            row.state = "ended"

    def _trained(self, trained: queue_pb2.TrainedEpisode) -> None:
        row = self.episodes.get(trained.episode_id)
        if row is not None:
            row.state, row.reason = ("trained" if trained.trained else "dropped"), trained.why_not or row.reason
            row.mean_advantage, row.trained_tokens = trained.mean_advantage, trained.trained_tokens
            row.total_reward = trained.total_reward

    def _decided(self, decision: queue_pb2.Decision, at_s: float) -> None:
        match decision.WhichOneof("kind"):
            case "item_admitted":
                for row in self.groups.get(decision.item_admitted.group_id, ()):
                    row.admitted_at_s, row.position = at_s, decision.item_admitted.position
                    row.state = "in_flight" if row.state == "queued" else row.state
            case "evaluation_admitted":
                row = self.episodes.get(decision.evaluation_admitted.episode_id)
                if row is not None:
                    row.admitted_at_s, row.state = at_s, "in_flight"
            case "member_revoked":
                row = self.episodes.get(decision.member_revoked.episode_id)
                if row is not None:
                    row.reason = decision.member_revoked.reason
            case "item_taken":
                for row in self.groups.get(decision.item_taken.group_id, ()):
                    row.batch, row.state = decision.item_taken.batch, "batched"
            case "item_dropped":
                for row in self.groups.get(decision.item_dropped.group_id, ()):
                    row.state, row.reason = "dropped", decision.item_dropped.reason
            case "episodes_pruned":
                self._pruned(decision.episodes_pruned.episode_ids, at_s)
            case _:
                pass


def outcome_name(number: int) -> str:
    """The outcome's name, in lower case; `unknown` for one that this version doesn't know."""
    try:
        return task_pb2.Outcome.Name(task_pb2.Outcome.ValueType(number)).removeprefix("OUTCOME_").lower()
    except ValueError:
        return "unknown"


def fold(run_id: str, records: Iterable[queue_pb2.QueueAdvanced]) -> PoolIndex:
    """The index of a run, as far as its queue knows."""
    index = PoolIndex(run_id)
    for record in records:
        index.take(record)
    return index
