import datetime

from forgerl.common.v1 import run_pb2 as _run_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_ENDED: _ClassVar[RunState]
    RUN_STATE_REMOVED: _ClassVar[RunState]
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_ENDED: RunState
RUN_STATE_REMOVED: RunState

class CreateRunRequest(_message.Message):
    __slots__ = ("run_id", "spec")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    spec: _run_pb2.RunSpec
    def __init__(self, run_id: _Optional[str] = ..., spec: _Optional[_Union[_run_pb2.RunSpec, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunView]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunView, _Mapping]]] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "follow")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    follow: bool
    def __init__(self, run_id: _Optional[str] = ..., follow: bool = ...) -> None: ...

class StopRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("run_id", "end")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    end: _run_pb2.EndSpec
    def __init__(self, run_id: _Optional[str] = ..., end: _Optional[_Union[_run_pb2.EndSpec, _Mapping]] = ...) -> None: ...

class RemoveRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class RemoveRunResponse(_message.Message):
    __slots__ = ("blobs", "freed_bytes")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    blobs: int
    freed_bytes: int
    def __init__(self, blobs: _Optional[int] = ..., freed_bytes: _Optional[int] = ...) -> None: ...

class RunView(_message.Message):
    __slots__ = ("run_id", "spec", "state", "end_reason", "created_at", "ended_at", "policy_step", "policy_digest", "policy_uri", "steps", "episodes_submitted", "episodes_sealed", "evaluations_submitted", "evaluations_sealed", "metrics", "failure")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POLICY_URI_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    EPISODES_SEALED_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_SEALED_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    spec: _run_pb2.RunSpec
    state: RunState
    end_reason: str
    created_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    policy_step: int
    policy_digest: str
    policy_uri: str
    steps: int
    episodes_submitted: int
    episodes_sealed: int
    evaluations_submitted: int
    evaluations_sealed: int
    metrics: _containers.ScalarMap[str, float]
    failure: str
    def __init__(self, run_id: _Optional[str] = ..., spec: _Optional[_Union[_run_pb2.RunSpec, _Mapping]] = ..., state: _Optional[_Union[RunState, str]] = ..., end_reason: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., policy_step: _Optional[int] = ..., policy_digest: _Optional[str] = ..., policy_uri: _Optional[str] = ..., steps: _Optional[int] = ..., episodes_submitted: _Optional[int] = ..., episodes_sealed: _Optional[int] = ..., evaluations_submitted: _Optional[int] = ..., evaluations_sealed: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., failure: _Optional[str] = ...) -> None: ...
