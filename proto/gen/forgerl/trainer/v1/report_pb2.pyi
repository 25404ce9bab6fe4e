from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepReport(_message.Message):
    __slots__ = ("run_id", "step", "metrics", "episodes", "histograms")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAMS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    metrics: _containers.ScalarMap[str, float]
    episodes: _containers.RepeatedCompositeFieldContainer[EpisodeReport]
    histograms: _containers.RepeatedCompositeFieldContainer[HistogramReport]
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., episodes: _Optional[_Iterable[_Union[EpisodeReport, _Mapping]]] = ..., histograms: _Optional[_Iterable[_Union[HistogramReport, _Mapping]]] = ...) -> None: ...

class HistogramReport(_message.Message):
    __slots__ = ("name", "edges", "counts", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    edges: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    low: float
    high: float
    def __init__(self, name: _Optional[str] = ..., edges: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class EpisodeReport(_message.Message):
    __slots__ = ("episode_id", "trained", "why_not", "total_reward", "mean_advantage", "trained_tokens", "turn_advantages", "staleness_steps", "loss_weight", "masked_tokens")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    MEAN_ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    TRAINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TURN_ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_STEPS_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MASKED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    trained: bool
    why_not: str
    total_reward: float
    mean_advantage: float
    trained_tokens: int
    turn_advantages: _containers.RepeatedScalarFieldContainer[float]
    staleness_steps: int
    loss_weight: float
    masked_tokens: int
    def __init__(self, episode_id: _Optional[str] = ..., trained: bool = ..., why_not: _Optional[str] = ..., total_reward: _Optional[float] = ..., mean_advantage: _Optional[float] = ..., trained_tokens: _Optional[int] = ..., turn_advantages: _Optional[_Iterable[float]] = ..., staleness_steps: _Optional[int] = ..., loss_weight: _Optional[float] = ..., masked_tokens: _Optional[int] = ...) -> None: ...
