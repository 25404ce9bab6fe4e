import datetime

from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeAdmitted(_message.Message):
    __slots__ = ("episode_id", "run_id", "group_id", "kind", "domain", "position", "deadline")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    group_id: str
    kind: _task_pb2.EpisodeKind
    domain: str
    position: int
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., group_id: _Optional[str] = ..., kind: _Optional[_Union[_task_pb2.EpisodeKind, str]] = ..., domain: _Optional[str] = ..., position: _Optional[int] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EpisodeRevoked(_message.Message):
    __slots__ = ("episode_id", "run_id", "reason")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    reason: str
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class BatchAssembled(_message.Message):
    __slots__ = ("run_id", "batch", "manifest", "item_count", "episode_count", "out_of_order_max", "out_of_order_mean")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    EPISODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDER_MAX_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDER_MEAN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    batch: int
    manifest: _blob_pb2.BlobRef
    item_count: int
    episode_count: int
    out_of_order_max: int
    out_of_order_mean: float
    def __init__(self, run_id: _Optional[str] = ..., batch: _Optional[int] = ..., manifest: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., item_count: _Optional[int] = ..., episode_count: _Optional[int] = ..., out_of_order_max: _Optional[int] = ..., out_of_order_mean: _Optional[float] = ...) -> None: ...

class SampleDropped(_message.Message):
    __slots__ = ("run_id", "group_id", "position", "reason", "episode_ids")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    group_id: str
    position: int
    reason: str
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., group_id: _Optional[str] = ..., position: _Optional[int] = ..., reason: _Optional[str] = ..., episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EpisodesPruned(_message.Message):
    __slots__ = ("run_id", "episode_ids", "keep_steps")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    keep_steps: int
    def __init__(self, run_id: _Optional[str] = ..., episode_ids: _Optional[_Iterable[str]] = ..., keep_steps: _Optional[int] = ...) -> None: ...
