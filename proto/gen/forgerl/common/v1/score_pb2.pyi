from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TurnReward(_message.Message):
    __slots__ = ("turn", "rule", "value")
    TURN_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    turn: int
    rule: str
    value: float
    def __init__(self, turn: _Optional[int] = ..., rule: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("performance", "process", "detail", "failure_class")
    PERFORMANCE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    performance: float
    process: _containers.RepeatedCompositeFieldContainer[TurnReward]
    detail: str
    failure_class: str
    def __init__(self, performance: _Optional[float] = ..., process: _Optional[_Iterable[_Union[TurnReward, _Mapping]]] = ..., detail: _Optional[str] = ..., failure_class: _Optional[str] = ...) -> None: ...
