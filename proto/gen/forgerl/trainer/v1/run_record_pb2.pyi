from forgerl.common.v1 import run_pb2 as _run_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunTaken(_message.Message):
    __slots__ = ("run_id", "spec", "pace")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    spec: _run_pb2.RunSpec
    pace: TrainingPace
    def __init__(self, run_id: _Optional[str] = ..., spec: _Optional[_Union[_run_pb2.RunSpec, _Mapping]] = ..., pace: _Optional[_Union[TrainingPace, _Mapping]] = ...) -> None: ...

class TrainingPace(_message.Message):
    __slots__ = ("operation_s", "call_s")
    OPERATION_S_FIELD_NUMBER: _ClassVar[int]
    CALL_S_FIELD_NUMBER: _ClassVar[int]
    operation_s: float
    call_s: float
    def __init__(self, operation_s: _Optional[float] = ..., call_s: _Optional[float] = ...) -> None: ...

class RunFreed(_message.Message):
    __slots__ = ("run_id", "freed_bytes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    freed_bytes: int
    def __init__(self, run_id: _Optional[str] = ..., freed_bytes: _Optional[int] = ...) -> None: ...

class PolicyPinned(_message.Message):
    __slots__ = ("run_id", "step")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...
