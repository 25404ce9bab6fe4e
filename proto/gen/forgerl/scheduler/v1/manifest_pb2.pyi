from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import score_pb2 as _score_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BatchManifest(_message.Message):
    __slots__ = ("run_id", "batch", "items")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    batch: int
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    def __init__(self, run_id: _Optional[str] = ..., batch: _Optional[int] = ..., items: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("group_id", "domain", "position", "episodes")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    domain: str
    position: int
    episodes: _containers.RepeatedCompositeFieldContainer[BatchEpisode]
    def __init__(self, group_id: _Optional[str] = ..., domain: _Optional[str] = ..., position: _Optional[int] = ..., episodes: _Optional[_Iterable[_Union[BatchEpisode, _Mapping]]] = ...) -> None: ...

class BatchEpisode(_message.Message):
    __slots__ = ("episode_id", "trajectory", "score", "outcome", "agent_wall_s", "first_policy_step", "eligible", "why_not", "traceparent")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    trajectory: _blob_pb2.BlobRef
    score: _score_pb2.Score
    outcome: _task_pb2.Outcome
    agent_wall_s: float
    first_policy_step: int
    eligible: bool
    why_not: str
    traceparent: str
    def __init__(self, episode_id: _Optional[str] = ..., trajectory: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., score: _Optional[_Union[_score_pb2.Score, _Mapping]] = ..., outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., agent_wall_s: _Optional[float] = ..., first_policy_step: _Optional[int] = ..., eligible: bool = ..., why_not: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...
