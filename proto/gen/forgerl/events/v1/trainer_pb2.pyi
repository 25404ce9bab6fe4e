import datetime

from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepCompleted(_message.Message):
    __slots__ = ("run_id", "step", "checkpoint_uri", "checkpoint_sha256", "report", "metrics", "completed_at", "trained_tokens")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SHA256_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    TRAINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    checkpoint_uri: str
    checkpoint_sha256: str
    report: _blob_pb2.BlobRef
    metrics: _containers.ScalarMap[str, float]
    completed_at: _timestamp_pb2.Timestamp
    trained_tokens: int
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., checkpoint_uri: _Optional[str] = ..., checkpoint_sha256: _Optional[str] = ..., report: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trained_tokens: _Optional[int] = ...) -> None: ...

class PolicyPublished(_message.Message):
    __slots__ = ("run_id", "step", "digest", "uri", "published_at", "size_bytes", "adapter")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    digest: str
    uri: str
    published_at: _timestamp_pb2.Timestamp
    size_bytes: int
    adapter: bool
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., digest: _Optional[str] = ..., uri: _Optional[str] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., size_bytes: _Optional[int] = ..., adapter: bool = ...) -> None: ...

class StepFailed(_message.Message):
    __slots__ = ("run_id", "step", "detail")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    detail: str
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...
