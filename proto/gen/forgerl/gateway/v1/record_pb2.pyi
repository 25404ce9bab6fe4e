import datetime

from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import score_pb2 as _score_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from forgerl.events.v1 import gateway_pb2 as _gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2 as _episode_service_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TurnRecorded(_message.Message):
    __slots__ = ("call_id", "idempotency_key", "digest", "attempt", "parent_id", "frame", "context_json", "message_json", "tokens", "tokens_blob", "spans", "temperature", "top_p", "finish_reason", "ended", "replaces", "prompt_tokens", "cached_tokens", "queue_s", "total_s")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_JSON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_JSON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BLOB_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    idempotency_key: str
    digest: str
    attempt: int
    parent_id: int
    frame: str
    context_json: _containers.RepeatedScalarFieldContainer[str]
    message_json: str
    tokens: TurnTokens
    tokens_blob: _blob_pb2.BlobRef
    spans: _containers.RepeatedCompositeFieldContainer[_episode_service_pb2.WeightSpan]
    temperature: float
    top_p: float
    finish_reason: str
    ended: bool
    replaces: int
    prompt_tokens: int
    cached_tokens: int
    queue_s: float
    total_s: float
    def __init__(self, call_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., digest: _Optional[str] = ..., attempt: _Optional[int] = ..., parent_id: _Optional[int] = ..., frame: _Optional[str] = ..., context_json: _Optional[_Iterable[str]] = ..., message_json: _Optional[str] = ..., tokens: _Optional[_Union[TurnTokens, _Mapping]] = ..., tokens_blob: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[_episode_service_pb2.WeightSpan, _Mapping]]] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., finish_reason: _Optional[str] = ..., ended: bool = ..., replaces: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., queue_s: _Optional[float] = ..., total_s: _Optional[float] = ...) -> None: ...

class TurnTokens(_message.Message):
    __slots__ = ("context_ids", "sampled_ids", "logprobs")
    CONTEXT_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    context_ids: bytes
    sampled_ids: bytes
    logprobs: bytes
    def __init__(self, context_ids: _Optional[bytes] = ..., sampled_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ...) -> None: ...

class TurnsClosed(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RecordedChecked(_message.Message):
    __slots__ = ("seal",)
    SEAL_FIELD_NUMBER: _ClassVar[int]
    seal: _gateway_pb2.TrajectorySealed
    def __init__(self, seal: _Optional[_Union[_gateway_pb2.TrajectorySealed, _Mapping]] = ...) -> None: ...

class EpisodeObserved(_message.Message):
    __slots__ = ("time", "admitted", "revoked_reason", "started_agent", "finished", "failed", "scored", "scoring_failed")
    TIME_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_REASON_FIELD_NUMBER: _ClassVar[int]
    STARTED_AGENT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    SCORING_FAILED_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    admitted: AdmissionObserved
    revoked_reason: str
    started_agent: str
    finished: OutcomeObserved
    failed: OutcomeObserved
    scored: _score_pb2.Score
    scoring_failed: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., admitted: _Optional[_Union[AdmissionObserved, _Mapping]] = ..., revoked_reason: _Optional[str] = ..., started_agent: _Optional[str] = ..., finished: _Optional[_Union[OutcomeObserved, _Mapping]] = ..., failed: _Optional[_Union[OutcomeObserved, _Mapping]] = ..., scored: _Optional[_Union[_score_pb2.Score, _Mapping]] = ..., scoring_failed: _Optional[str] = ...) -> None: ...

class AdmissionObserved(_message.Message):
    __slots__ = ("deadline",)
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OutcomeObserved(_message.Message):
    __slots__ = ("outcome", "answer", "detail", "agent_wall_s")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    outcome: _task_pb2.Outcome
    answer: str
    detail: str
    agent_wall_s: float
    def __init__(self, outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., answer: _Optional[str] = ..., detail: _Optional[str] = ..., agent_wall_s: _Optional[float] = ...) -> None: ...

class RunObserved(_message.Message):
    __slots__ = ("time", "step", "policy", "step_failed", "batch", "episodes_dropped")
    TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    STEP_FAILED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EPISODES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    step: StepObserved
    policy: PolicyObserved
    step_failed: str
    batch: BatchObserved
    episodes_dropped: int
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[_Union[StepObserved, _Mapping]] = ..., policy: _Optional[_Union[PolicyObserved, _Mapping]] = ..., step_failed: _Optional[str] = ..., batch: _Optional[_Union[BatchObserved, _Mapping]] = ..., episodes_dropped: _Optional[int] = ...) -> None: ...

class StepObserved(_message.Message):
    __slots__ = ("step", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    step: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class BatchObserved(_message.Message):
    __slots__ = ("batch", "episodes")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    batch: int
    episodes: int
    def __init__(self, batch: _Optional[int] = ..., episodes: _Optional[int] = ...) -> None: ...

class PolicyObserved(_message.Message):
    __slots__ = ("step", "digest", "uri")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    step: int
    digest: str
    uri: str
    def __init__(self, step: _Optional[int] = ..., digest: _Optional[str] = ..., uri: _Optional[str] = ...) -> None: ...

class TrainingClaimed(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class EpisodesFreed(_message.Message):
    __slots__ = ("run_id", "event_id", "episode_ids", "blobs", "freed_bytes", "kept_blobs")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEPT_BLOBS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    event_id: str
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    blobs: int
    freed_bytes: int
    kept_blobs: int
    def __init__(self, run_id: _Optional[str] = ..., event_id: _Optional[str] = ..., episode_ids: _Optional[_Iterable[str]] = ..., blobs: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., kept_blobs: _Optional[int] = ...) -> None: ...
