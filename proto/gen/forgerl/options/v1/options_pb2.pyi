from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
EVENT_FIELD_NUMBER: _ClassVar[int]
event: _descriptor.FieldDescriptor

class Event(_message.Message):
    __slots__ = ("topic", "key", "lossy")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LOSSY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    lossy: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., lossy: bool = ...) -> None: ...
