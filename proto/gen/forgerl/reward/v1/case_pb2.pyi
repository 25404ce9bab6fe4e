from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskNoted(_message.Message):
    __slots__ = ("run_id", "task")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    task: _task_pb2.Task
    def __init__(self, run_id: _Optional[str] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class AnswerNoted(_message.Message):
    __slots__ = ("outcome", "answer", "answer_blob")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_BLOB_FIELD_NUMBER: _ClassVar[int]
    outcome: _task_pb2.Outcome
    answer: str
    answer_blob: _blob_pb2.BlobRef
    def __init__(self, outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., answer: _Optional[str] = ..., answer_blob: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ...) -> None: ...

class TrajectoryNoted(_message.Message):
    __slots__ = ("trajectory",)
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    trajectory: _blob_pb2.BlobRef
    def __init__(self, trajectory: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ...) -> None: ...

class CaseDismissed(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CaseDecided(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
