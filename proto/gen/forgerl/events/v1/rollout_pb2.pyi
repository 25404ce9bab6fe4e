import datetime

from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeStarted(_message.Message):
    __slots__ = ("episode_id", "run_id", "agent", "started_at")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    agent: str
    started_at: _timestamp_pb2.Timestamp
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., agent: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EpisodeFinished(_message.Message):
    __slots__ = ("episode_id", "run_id", "outcome", "answer", "answer_blob", "agent_wall_s", "tool_calls", "failed_tool_calls", "finished_at")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_BLOB_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    outcome: _task_pb2.Outcome
    answer: str
    answer_blob: _blob_pb2.BlobRef
    agent_wall_s: float
    tool_calls: int
    failed_tool_calls: int
    finished_at: _timestamp_pb2.Timestamp
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., answer: _Optional[str] = ..., answer_blob: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., agent_wall_s: _Optional[float] = ..., tool_calls: _Optional[int] = ..., failed_tool_calls: _Optional[int] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EpisodeFailed(_message.Message):
    __slots__ = ("episode_id", "run_id", "outcome", "detail", "finished_at")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    outcome: _task_pb2.Outcome
    detail: str
    finished_at: _timestamp_pb2.Timestamp
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., detail: _Optional[str] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
