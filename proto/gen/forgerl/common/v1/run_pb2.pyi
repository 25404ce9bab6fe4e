from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchedulingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULING_MODE_UNSPECIFIED: _ClassVar[SchedulingMode]
    SCHEDULING_MODE_ROLLING: _ClassVar[SchedulingMode]
    SCHEDULING_MODE_COHORT: _ClassVar[SchedulingMode]

class SelectionPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SELECTION_POLICY_UNSPECIFIED: _ClassVar[SelectionPolicy]
    SELECTION_POLICY_WINDOWED_FIFO: _ClassVar[SelectionPolicy]
    SELECTION_POLICY_STRICT_FIFO: _ClassVar[SelectionPolicy]
    SELECTION_POLICY_GREEDY: _ClassVar[SelectionPolicy]
    SELECTION_POLICY_VERSION_WINDOW: _ClassVar[SelectionPolicy]

class LossKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_KIND_UNSPECIFIED: _ClassVar[LossKind]
    LOSS_KIND_CISPO: _ClassVar[LossKind]
    LOSS_KIND_GRPO: _ClassVar[LossKind]
    LOSS_KIND_GSPO: _ClassVar[LossKind]
    LOSS_KIND_PPO_CLIP: _ClassVar[LossKind]

class LossNormalisation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_NORMALISATION_UNSPECIFIED: _ClassVar[LossNormalisation]
    LOSS_NORMALISATION_GLOBAL: _ClassVar[LossNormalisation]
    LOSS_NORMALISATION_PROMPT_GROUP: _ClassVar[LossNormalisation]

class BaselineKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BASELINE_KIND_UNSPECIFIED: _ClassVar[BaselineKind]
    BASELINE_KIND_LEAVE_ONE_OUT_TOKEN_MEAN: _ClassVar[BaselineKind]
    BASELINE_KIND_TURN_ALIGNED: _ClassVar[BaselineKind]
SCHEDULING_MODE_UNSPECIFIED: SchedulingMode
SCHEDULING_MODE_ROLLING: SchedulingMode
SCHEDULING_MODE_COHORT: SchedulingMode
SELECTION_POLICY_UNSPECIFIED: SelectionPolicy
SELECTION_POLICY_WINDOWED_FIFO: SelectionPolicy
SELECTION_POLICY_STRICT_FIFO: SelectionPolicy
SELECTION_POLICY_GREEDY: SelectionPolicy
SELECTION_POLICY_VERSION_WINDOW: SelectionPolicy
LOSS_KIND_UNSPECIFIED: LossKind
LOSS_KIND_CISPO: LossKind
LOSS_KIND_GRPO: LossKind
LOSS_KIND_GSPO: LossKind
LOSS_KIND_PPO_CLIP: LossKind
LOSS_NORMALISATION_UNSPECIFIED: LossNormalisation
LOSS_NORMALISATION_GLOBAL: LossNormalisation
LOSS_NORMALISATION_PROMPT_GROUP: LossNormalisation
BASELINE_KIND_UNSPECIFIED: BaselineKind
BASELINE_KIND_LEAVE_ONE_OUT_TOKEN_MEAN: BaselineKind
BASELINE_KIND_TURN_ALIGNED: BaselineKind

class RunSpec(_message.Message):
    __slots__ = ("name", "seed", "model", "domains", "sampling", "scheduling", "reward", "training", "evaluation", "end")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    name: str
    seed: int
    model: ModelSpec
    domains: _containers.RepeatedCompositeFieldContainer[DomainSpec]
    sampling: SamplingSpec
    scheduling: SchedulingSpec
    reward: RewardSpec
    training: TrainingSpec
    evaluation: EvaluationSpec
    end: EndSpec
    def __init__(self, name: _Optional[str] = ..., seed: _Optional[int] = ..., model: _Optional[_Union[ModelSpec, _Mapping]] = ..., domains: _Optional[_Iterable[_Union[DomainSpec, _Mapping]]] = ..., sampling: _Optional[_Union[SamplingSpec, _Mapping]] = ..., scheduling: _Optional[_Union[SchedulingSpec, _Mapping]] = ..., reward: _Optional[_Union[RewardSpec, _Mapping]] = ..., training: _Optional[_Union[TrainingSpec, _Mapping]] = ..., evaluation: _Optional[_Union[EvaluationSpec, _Mapping]] = ..., end: _Optional[_Union[EndSpec, _Mapping]] = ...) -> None: ...

class ModelSpec(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class DomainSpec(_message.Message):
    __slots__ = ("name", "environment", "weight", "agent", "agent_timeout_s", "max_turns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AGENT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    environment: str
    weight: float
    agent: str
    agent_timeout_s: float
    max_turns: int
    def __init__(self, name: _Optional[str] = ..., environment: _Optional[str] = ..., weight: _Optional[float] = ..., agent: _Optional[str] = ..., agent_timeout_s: _Optional[float] = ..., max_turns: _Optional[int] = ...) -> None: ...

class SamplingSpec(_message.Message):
    __slots__ = ("temperature", "top_p", "max_tokens")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    max_tokens: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class SchedulingSpec(_message.Message):
    __slots__ = ("mode", "policy", "group_size", "items_per_batch", "queue_items", "window_items", "in_flight_items", "lookahead_steps", "deadline_s", "max_staleness_steps", "window", "drift_bound", "version_window_steps", "fleet_weight", "keep_steps")
    MODE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_PER_BATCH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_ITEMS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_STEPS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_STEPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DRIFT_BOUND_FIELD_NUMBER: _ClassVar[int]
    VERSION_WINDOW_STEPS_FIELD_NUMBER: _ClassVar[int]
    FLEET_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    mode: SchedulingMode
    policy: SelectionPolicy
    group_size: int
    items_per_batch: int
    queue_items: int
    window_items: int
    in_flight_items: int
    lookahead_steps: int
    deadline_s: float
    max_staleness_steps: int
    window: str
    drift_bound: float
    version_window_steps: int
    fleet_weight: float
    keep_steps: int
    def __init__(self, mode: _Optional[_Union[SchedulingMode, str]] = ..., policy: _Optional[_Union[SelectionPolicy, str]] = ..., group_size: _Optional[int] = ..., items_per_batch: _Optional[int] = ..., queue_items: _Optional[int] = ..., window_items: _Optional[int] = ..., in_flight_items: _Optional[int] = ..., lookahead_steps: _Optional[int] = ..., deadline_s: _Optional[float] = ..., max_staleness_steps: _Optional[int] = ..., window: _Optional[str] = ..., drift_bound: _Optional[float] = ..., version_window_steps: _Optional[int] = ..., fleet_weight: _Optional[float] = ..., keep_steps: _Optional[int] = ...) -> None: ...

class RewardSpec(_message.Message):
    __slots__ = ("alpha", "beta", "gamma", "time_base_s")
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    TIME_BASE_S_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    beta: float
    gamma: float
    time_base_s: float
    def __init__(self, alpha: _Optional[float] = ..., beta: _Optional[float] = ..., gamma: _Optional[float] = ..., time_base_s: _Optional[float] = ...) -> None: ...

class TrainingSpec(_message.Message):
    __slots__ = ("loss", "cispo_cap", "baseline", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm", "micro_batch_tokens", "mismatch_limit", "keep_checkpoints", "min_reward_spread", "clip_low", "clip_high", "normalisation", "truncated_importance_cap", "max_token_staleness_steps", "merge_prefixes", "activation_checkpointing", "lora_rank", "lora_alpha", "mtp_top_k", "mtp_learning_rate", "mismatch_kl_alarm")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    CISPO_CAP_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    ADAM_BETA1_FIELD_NUMBER: _ClassVar[int]
    ADAM_BETA2_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_LIMIT_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    MIN_REWARD_SPREAD_FIELD_NUMBER: _ClassVar[int]
    CLIP_LOW_FIELD_NUMBER: _ClassVar[int]
    CLIP_HIGH_FIELD_NUMBER: _ClassVar[int]
    NORMALISATION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_IMPORTANCE_CAP_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKEN_STALENESS_STEPS_FIELD_NUMBER: _ClassVar[int]
    MERGE_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_CHECKPOINTING_FIELD_NUMBER: _ClassVar[int]
    LORA_RANK_FIELD_NUMBER: _ClassVar[int]
    LORA_ALPHA_FIELD_NUMBER: _ClassVar[int]
    MTP_TOP_K_FIELD_NUMBER: _ClassVar[int]
    MTP_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_KL_ALARM_FIELD_NUMBER: _ClassVar[int]
    loss: LossKind
    cispo_cap: float
    baseline: BaselineKind
    learning_rate: float
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    max_grad_norm: float
    micro_batch_tokens: int
    mismatch_limit: float
    keep_checkpoints: int
    min_reward_spread: float
    clip_low: float
    clip_high: float
    normalisation: LossNormalisation
    truncated_importance_cap: float
    max_token_staleness_steps: int
    merge_prefixes: bool
    activation_checkpointing: bool
    lora_rank: int
    lora_alpha: float
    mtp_top_k: int
    mtp_learning_rate: float
    mismatch_kl_alarm: float
    def __init__(self, loss: _Optional[_Union[LossKind, str]] = ..., cispo_cap: _Optional[float] = ..., baseline: _Optional[_Union[BaselineKind, str]] = ..., learning_rate: _Optional[float] = ..., weight_decay: _Optional[float] = ..., adam_beta1: _Optional[float] = ..., adam_beta2: _Optional[float] = ..., max_grad_norm: _Optional[float] = ..., micro_batch_tokens: _Optional[int] = ..., mismatch_limit: _Optional[float] = ..., keep_checkpoints: _Optional[int] = ..., min_reward_spread: _Optional[float] = ..., clip_low: _Optional[float] = ..., clip_high: _Optional[float] = ..., normalisation: _Optional[_Union[LossNormalisation, str]] = ..., truncated_importance_cap: _Optional[float] = ..., max_token_staleness_steps: _Optional[int] = ..., merge_prefixes: bool = ..., activation_checkpointing: bool = ..., lora_rank: _Optional[int] = ..., lora_alpha: _Optional[float] = ..., mtp_top_k: _Optional[int] = ..., mtp_learning_rate: _Optional[float] = ..., mismatch_kl_alarm: _Optional[float] = ...) -> None: ...

class EvaluationSpec(_message.Message):
    __slots__ = ("tasks_per_domain", "at_start", "at_end")
    TASKS_PER_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    AT_START_FIELD_NUMBER: _ClassVar[int]
    AT_END_FIELD_NUMBER: _ClassVar[int]
    tasks_per_domain: int
    at_start: bool
    at_end: bool
    def __init__(self, tasks_per_domain: _Optional[int] = ..., at_start: bool = ..., at_end: bool = ...) -> None: ...

class EndSpec(_message.Message):
    __slots__ = ("steps", "episodes", "time_s", "target_reward")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    TARGET_REWARD_FIELD_NUMBER: _ClassVar[int]
    steps: int
    episodes: int
    time_s: float
    target_reward: float
    def __init__(self, steps: _Optional[int] = ..., episodes: _Optional[int] = ..., time_s: _Optional[float] = ..., target_reward: _Optional[float] = ...) -> None: ...
