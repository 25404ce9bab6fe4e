from forgerl.common.v1 import score_pb2 as _score_pb2
from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeScored(_message.Message):
    __slots__ = ("episode_id", "run_id", "score")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    score: _score_pb2.Score
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., score: _Optional[_Union[_score_pb2.Score, _Mapping]] = ...) -> None: ...

class ScoringFailed(_message.Message):
    __slots__ = ("episode_id", "run_id", "detail")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    detail: str
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
