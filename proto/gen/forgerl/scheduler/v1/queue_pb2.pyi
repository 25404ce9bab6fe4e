from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueueAdvanced(_message.Message):
    __slots__ = ("event_id", "occurred_at_s", "taken_at_s", "writer", "run_opened", "run_ended", "run_reopened", "run_removed", "submitted", "cancelled", "sealed", "started", "finished", "failed", "scored", "scoring_failed", "step_done", "step_failed", "policy", "tick", "fleet", "pruned", "pruning_requested", "decisions")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_S_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_S_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    RUN_OPENED_FIELD_NUMBER: _ClassVar[int]
    RUN_ENDED_FIELD_NUMBER: _ClassVar[int]
    RUN_REOPENED_FIELD_NUMBER: _ClassVar[int]
    RUN_REMOVED_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    SCORING_FAILED_FIELD_NUMBER: _ClassVar[int]
    STEP_DONE_FIELD_NUMBER: _ClassVar[int]
    STEP_FAILED_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    PRUNING_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    occurred_at_s: float
    taken_at_s: float
    writer: str
    run_opened: RunOpenedFact
    run_ended: RunEndedFact
    run_reopened: RunReopenedFact
    run_removed: RunRemovedFact
    submitted: SubmittedFact
    cancelled: CancelledFact
    sealed: SealedFact
    started: StartedFact
    finished: FinishedFact
    failed: FailedFact
    scored: ScoredFact
    scoring_failed: ScoringFailedFact
    step_done: StepDoneFact
    step_failed: StepFailedFact
    policy: PolicyFact
    tick: TickFact
    fleet: FleetFact
    pruned: TrajectoriesPrunedFact
    pruning_requested: PruningRequestedFact
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    def __init__(self, event_id: _Optional[str] = ..., occurred_at_s: _Optional[float] = ..., taken_at_s: _Optional[float] = ..., writer: _Optional[str] = ..., run_opened: _Optional[_Union[RunOpenedFact, _Mapping]] = ..., run_ended: _Optional[_Union[RunEndedFact, _Mapping]] = ..., run_reopened: _Optional[_Union[RunReopenedFact, _Mapping]] = ..., run_removed: _Optional[_Union[RunRemovedFact, _Mapping]] = ..., submitted: _Optional[_Union[SubmittedFact, _Mapping]] = ..., cancelled: _Optional[_Union[CancelledFact, _Mapping]] = ..., sealed: _Optional[_Union[SealedFact, _Mapping]] = ..., started: _Optional[_Union[StartedFact, _Mapping]] = ..., finished: _Optional[_Union[FinishedFact, _Mapping]] = ..., failed: _Optional[_Union[FailedFact, _Mapping]] = ..., scored: _Optional[_Union[ScoredFact, _Mapping]] = ..., scoring_failed: _Optional[_Union[ScoringFailedFact, _Mapping]] = ..., step_done: _Optional[_Union[StepDoneFact, _Mapping]] = ..., step_failed: _Optional[_Union[StepFailedFact, _Mapping]] = ..., policy: _Optional[_Union[PolicyFact, _Mapping]] = ..., tick: _Optional[_Union[TickFact, _Mapping]] = ..., fleet: _Optional[_Union[FleetFact, _Mapping]] = ..., pruned: _Optional[_Union[TrajectoriesPrunedFact, _Mapping]] = ..., pruning_requested: _Optional[_Union[PruningRequestedFact, _Mapping]] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ...) -> None: ...

class RunOpenedFact(_message.Message):
    __slots__ = ("domains", "group_size", "items_per_batch", "queue_items", "window_items", "in_flight_items", "lookahead_steps", "deadline_s", "max_staleness_steps", "min_reward_spread", "end_steps", "selection", "mode", "version_window_steps", "window_auto", "drift_bound", "fleet_weight", "owed_items", "keep_steps")
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_PER_BATCH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_ITEMS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_STEPS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_STEPS_FIELD_NUMBER: _ClassVar[int]
    MIN_REWARD_SPREAD_FIELD_NUMBER: _ClassVar[int]
    END_STEPS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_WINDOW_STEPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_AUTO_FIELD_NUMBER: _ClassVar[int]
    DRIFT_BOUND_FIELD_NUMBER: _ClassVar[int]
    FLEET_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    OWED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    domains: _containers.RepeatedCompositeFieldContainer[DomainWeight]
    group_size: int
    items_per_batch: int
    queue_items: int
    window_items: int
    in_flight_items: int
    lookahead_steps: int
    deadline_s: float
    max_staleness_steps: int
    min_reward_spread: float
    end_steps: int
    selection: str
    mode: str
    version_window_steps: int
    window_auto: bool
    drift_bound: float
    fleet_weight: float
    owed_items: int
    keep_steps: int
    def __init__(self, domains: _Optional[_Iterable[_Union[DomainWeight, _Mapping]]] = ..., group_size: _Optional[int] = ..., items_per_batch: _Optional[int] = ..., queue_items: _Optional[int] = ..., window_items: _Optional[int] = ..., in_flight_items: _Optional[int] = ..., lookahead_steps: _Optional[int] = ..., deadline_s: _Optional[float] = ..., max_staleness_steps: _Optional[int] = ..., min_reward_spread: _Optional[float] = ..., end_steps: _Optional[int] = ..., selection: _Optional[str] = ..., mode: _Optional[str] = ..., version_window_steps: _Optional[int] = ..., window_auto: bool = ..., drift_bound: _Optional[float] = ..., fleet_weight: _Optional[float] = ..., owed_items: _Optional[int] = ..., keep_steps: _Optional[int] = ...) -> None: ...

class DomainWeight(_message.Message):
    __slots__ = ("name", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: float
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class RunEndedFact(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RunReopenedFact(_message.Message):
    __slots__ = ("end_steps",)
    END_STEPS_FIELD_NUMBER: _ClassVar[int]
    end_steps: int
    def __init__(self, end_steps: _Optional[int] = ...) -> None: ...

class RunRemovedFact(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SubmittedFact(_message.Message):
    __slots__ = ("episode_id", "group_id", "domain", "pinned_step", "correlation_id", "traceparent")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PINNED_STEP_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    group_id: str
    domain: str
    pinned_step: int
    correlation_id: str
    traceparent: str
    def __init__(self, episode_id: _Optional[str] = ..., group_id: _Optional[str] = ..., domain: _Optional[str] = ..., pinned_step: _Optional[int] = ..., correlation_id: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...

class CancelledFact(_message.Message):
    __slots__ = ("episode_id", "reason")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    reason: str
    def __init__(self, episode_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SealedFact(_message.Message):
    __slots__ = ("episode_id", "trajectory", "sampled_tokens", "first_policy_step", "turn_count", "branch_count", "last_policy_step")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    TURN_COUNT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    trajectory: bytes
    sampled_tokens: int
    first_policy_step: int
    turn_count: int
    branch_count: int
    last_policy_step: int
    def __init__(self, episode_id: _Optional[str] = ..., trajectory: _Optional[bytes] = ..., sampled_tokens: _Optional[int] = ..., first_policy_step: _Optional[int] = ..., turn_count: _Optional[int] = ..., branch_count: _Optional[int] = ..., last_policy_step: _Optional[int] = ...) -> None: ...

class StartedFact(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class FinishedFact(_message.Message):
    __slots__ = ("episode_id", "outcome", "agent_wall_s")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    outcome: int
    agent_wall_s: float
    def __init__(self, episode_id: _Optional[str] = ..., outcome: _Optional[int] = ..., agent_wall_s: _Optional[float] = ...) -> None: ...

class FailedFact(_message.Message):
    __slots__ = ("episode_id", "outcome", "cancelled", "detail")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    outcome: int
    cancelled: bool
    detail: str
    def __init__(self, episode_id: _Optional[str] = ..., outcome: _Optional[int] = ..., cancelled: bool = ..., detail: _Optional[str] = ...) -> None: ...

class ScoredFact(_message.Message):
    __slots__ = ("episode_id", "performance", "failure_class", "score")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    PERFORMANCE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    performance: float
    failure_class: str
    score: bytes
    def __init__(self, episode_id: _Optional[str] = ..., performance: _Optional[float] = ..., failure_class: _Optional[str] = ..., score: _Optional[bytes] = ...) -> None: ...

class ScoringFailedFact(_message.Message):
    __slots__ = ("episode_id", "detail")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    detail: str
    def __init__(self, episode_id: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class StepDoneFact(_message.Message):
    __slots__ = ("step", "episodes")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    step: int
    episodes: _containers.RepeatedCompositeFieldContainer[TrainedEpisode]
    def __init__(self, step: _Optional[int] = ..., episodes: _Optional[_Iterable[_Union[TrainedEpisode, _Mapping]]] = ...) -> None: ...

class TrainedEpisode(_message.Message):
    __slots__ = ("episode_id", "trained", "why_not", "mean_advantage", "trained_tokens", "total_reward", "loss_weight", "masked_tokens")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    MEAN_ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    TRAINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MASKED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    trained: bool
    why_not: str
    mean_advantage: float
    trained_tokens: int
    total_reward: float
    loss_weight: float
    masked_tokens: int
    def __init__(self, episode_id: _Optional[str] = ..., trained: bool = ..., why_not: _Optional[str] = ..., mean_advantage: _Optional[float] = ..., trained_tokens: _Optional[int] = ..., total_reward: _Optional[float] = ..., loss_weight: _Optional[float] = ..., masked_tokens: _Optional[int] = ...) -> None: ...

class StepFailedFact(_message.Message):
    __slots__ = ("step", "detail")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    step: int
    detail: str
    def __init__(self, step: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class PolicyFact(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class TickFact(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FleetFact(_message.Message):
    __slots__ = ("episodes",)
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    episodes: int
    def __init__(self, episodes: _Optional[int] = ...) -> None: ...

class TrajectoriesPrunedFact(_message.Message):
    __slots__ = ("episode_ids", "keep_steps", "size_bytes")
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    keep_steps: int
    size_bytes: int
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ..., keep_steps: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PruningRequestedFact(_message.Message):
    __slots__ = ("keep_steps",)
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    keep_steps: int
    def __init__(self, keep_steps: _Optional[int] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("item_admitted", "evaluation_admitted", "member_revoked", "item_taken", "item_dropped", "batch_closed", "window_set", "episodes_pruned")
    ITEM_ADMITTED_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ADMITTED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_REVOKED_FIELD_NUMBER: _ClassVar[int]
    ITEM_TAKEN_FIELD_NUMBER: _ClassVar[int]
    ITEM_DROPPED_FIELD_NUMBER: _ClassVar[int]
    BATCH_CLOSED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SET_FIELD_NUMBER: _ClassVar[int]
    EPISODES_PRUNED_FIELD_NUMBER: _ClassVar[int]
    item_admitted: ItemAdmitted
    evaluation_admitted: EvaluationAdmitted
    member_revoked: MemberRevoked
    item_taken: ItemTaken
    item_dropped: ItemDropped
    batch_closed: BatchClosed
    window_set: WindowSet
    episodes_pruned: EpisodesPruned
    def __init__(self, item_admitted: _Optional[_Union[ItemAdmitted, _Mapping]] = ..., evaluation_admitted: _Optional[_Union[EvaluationAdmitted, _Mapping]] = ..., member_revoked: _Optional[_Union[MemberRevoked, _Mapping]] = ..., item_taken: _Optional[_Union[ItemTaken, _Mapping]] = ..., item_dropped: _Optional[_Union[ItemDropped, _Mapping]] = ..., batch_closed: _Optional[_Union[BatchClosed, _Mapping]] = ..., window_set: _Optional[_Union[WindowSet, _Mapping]] = ..., episodes_pruned: _Optional[_Union[EpisodesPruned, _Mapping]] = ...) -> None: ...

class ItemAdmitted(_message.Message):
    __slots__ = ("group_id", "position", "deadline_at_s")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_S_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    position: int
    deadline_at_s: float
    def __init__(self, group_id: _Optional[str] = ..., position: _Optional[int] = ..., deadline_at_s: _Optional[float] = ...) -> None: ...

class EvaluationAdmitted(_message.Message):
    __slots__ = ("episode_id", "deadline_at_s")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_S_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    deadline_at_s: float
    def __init__(self, episode_id: _Optional[str] = ..., deadline_at_s: _Optional[float] = ...) -> None: ...

class MemberRevoked(_message.Message):
    __slots__ = ("episode_id", "reason")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    reason: str
    def __init__(self, episode_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ItemTaken(_message.Message):
    __slots__ = ("group_id", "position", "batch", "distance")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    position: int
    batch: int
    distance: int
    def __init__(self, group_id: _Optional[str] = ..., position: _Optional[int] = ..., batch: _Optional[int] = ..., distance: _Optional[int] = ...) -> None: ...

class ItemDropped(_message.Message):
    __slots__ = ("group_id", "position", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    position: int
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., position: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class WindowSet(_message.Message):
    __slots__ = ("window_items",)
    WINDOW_ITEMS_FIELD_NUMBER: _ClassVar[int]
    window_items: int
    def __init__(self, window_items: _Optional[int] = ...) -> None: ...

class BatchClosed(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: int
    def __init__(self, batch: _Optional[int] = ...) -> None: ...

class EpisodesPruned(_message.Message):
    __slots__ = ("episode_ids", "keep_steps")
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    keep_steps: int
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ..., keep_steps: _Optional[int] = ...) -> None: ...
