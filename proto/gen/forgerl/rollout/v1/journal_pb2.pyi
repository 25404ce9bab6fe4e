from forgerl.common.v1 import blob_pb2 as _blob_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToolsAnswered(_message.Message):
    __slots__ = ("episode_id", "turn", "messages_json", "messages", "agent_s", "tool_calls", "failed_tool_calls")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AGENT_S_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    turn: int
    messages_json: str
    messages: _blob_pb2.BlobRef
    agent_s: float
    tool_calls: int
    failed_tool_calls: int
    def __init__(self, episode_id: _Optional[str] = ..., turn: _Optional[int] = ..., messages_json: _Optional[str] = ..., messages: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., agent_s: _Optional[float] = ..., tool_calls: _Optional[int] = ..., failed_tool_calls: _Optional[int] = ...) -> None: ...

class TextsFreed(_message.Message):
    __slots__ = ("run_id", "texts", "freed_bytes", "event_id", "episode_ids", "pruned", "kept_texts")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    KEPT_TEXTS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    texts: int
    freed_bytes: int
    event_id: str
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    pruned: bool
    kept_texts: int
    def __init__(self, run_id: _Optional[str] = ..., texts: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., event_id: _Optional[str] = ..., episode_ids: _Optional[_Iterable[str]] = ..., pruned: bool = ..., kept_texts: _Optional[int] = ...) -> None: ...
