from forgerl.common.v1 import blob_pb2 as _blob_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Split(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPLIT_UNSPECIFIED: _ClassVar[Split]
    SPLIT_TRAIN: _ClassVar[Split]
    SPLIT_HELDOUT: _ClassVar[Split]

class EpisodeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EPISODE_KIND_UNSPECIFIED: _ClassVar[EpisodeKind]
    EPISODE_KIND_TRAIN: _ClassVar[EpisodeKind]
    EPISODE_KIND_EVALUATION: _ClassVar[EpisodeKind]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_COMPLETED: _ClassVar[Outcome]
    OUTCOME_AGENT_TIMEOUT: _ClassVar[Outcome]
    OUTCOME_CONTEXT_OVERFLOW: _ClassVar[Outcome]
    OUTCOME_INFRA: _ClassVar[Outcome]
    OUTCOME_CANCELLED: _ClassVar[Outcome]
SPLIT_UNSPECIFIED: Split
SPLIT_TRAIN: Split
SPLIT_HELDOUT: Split
EPISODE_KIND_UNSPECIFIED: EpisodeKind
EPISODE_KIND_TRAIN: EpisodeKind
EPISODE_KIND_EVALUATION: EpisodeKind
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_COMPLETED: Outcome
OUTCOME_AGENT_TIMEOUT: Outcome
OUTCOME_CONTEXT_OVERFLOW: Outcome
OUTCOME_INFRA: Outcome
OUTCOME_CANCELLED: Outcome

class Task(_message.Message):
    __slots__ = ("environment", "task_id", "split", "payload")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    environment: str
    task_id: str
    split: Split
    payload: bytes
    def __init__(self, environment: _Optional[str] = ..., task_id: _Optional[str] = ..., split: _Optional[_Union[Split, str]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class RecordedEpisode(_message.Message):
    __slots__ = ("trajectory", "outcome", "answer", "agent_wall_s")
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    trajectory: _blob_pb2.BlobRef
    outcome: Outcome
    answer: str
    agent_wall_s: float
    def __init__(self, trajectory: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., answer: _Optional[str] = ..., agent_wall_s: _Optional[float] = ...) -> None: ...
