import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListPoliciesRequest(_message.Message):
    __slots__ = ("run_id", "include_gone")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_GONE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    include_gone: bool
    def __init__(self, run_id: _Optional[str] = ..., include_gone: bool = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[PolicyView]
    def __init__(self, policies: _Optional[_Iterable[_Union[PolicyView, _Mapping]]] = ...) -> None: ...

class PolicyView(_message.Message):
    __slots__ = ("run_id", "step", "digest", "uri", "published_at", "kept_as", "size_bytes", "adapter", "reward_mean", "mismatch_kl")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    KEPT_AS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    REWARD_MEAN_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_KL_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    digest: str
    uri: str
    published_at: _timestamp_pb2.Timestamp
    kept_as: str
    size_bytes: int
    adapter: bool
    reward_mean: float
    mismatch_kl: float
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., digest: _Optional[str] = ..., uri: _Optional[str] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kept_as: _Optional[str] = ..., size_bytes: _Optional[int] = ..., adapter: bool = ..., reward_mean: _Optional[float] = ..., mismatch_kl: _Optional[float] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepMetrics]
    def __init__(self, steps: _Optional[_Iterable[_Union[StepMetrics, _Mapping]]] = ...) -> None: ...

class StepMetrics(_message.Message):
    __slots__ = ("step", "metrics", "completed_at")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    step: int
    metrics: _containers.ScalarMap[str, float]
    completed_at: _timestamp_pb2.Timestamp
    def __init__(self, step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ScoreTokensRequest(_message.Message):
    __slots__ = ("run_id", "policy_step", "token_ids", "temperature")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    policy_step: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    temperature: float
    def __init__(self, run_id: _Optional[str] = ..., policy_step: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., temperature: _Optional[float] = ...) -> None: ...

class ScoreTokensResponse(_message.Message):
    __slots__ = ("logprobs",)
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprobs: _Optional[_Iterable[float]] = ...) -> None: ...
