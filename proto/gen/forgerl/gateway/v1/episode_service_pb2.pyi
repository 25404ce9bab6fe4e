import datetime

from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import score_pb2 as _score_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EPISODE_STATE_UNSPECIFIED: _ClassVar[EpisodeState]
    EPISODE_STATE_SUBMITTED: _ClassVar[EpisodeState]
    EPISODE_STATE_ADMITTED: _ClassVar[EpisodeState]
    EPISODE_STATE_STARTED: _ClassVar[EpisodeState]
    EPISODE_STATE_FINISHED: _ClassVar[EpisodeState]
    EPISODE_STATE_SEALED: _ClassVar[EpisodeState]
    EPISODE_STATE_SCORED: _ClassVar[EpisodeState]
    EPISODE_STATE_FAILED: _ClassVar[EpisodeState]
    EPISODE_STATE_CANCELLED: _ClassVar[EpisodeState]
EPISODE_STATE_UNSPECIFIED: EpisodeState
EPISODE_STATE_SUBMITTED: EpisodeState
EPISODE_STATE_ADMITTED: EpisodeState
EPISODE_STATE_STARTED: EpisodeState
EPISODE_STATE_FINISHED: EpisodeState
EPISODE_STATE_SEALED: EpisodeState
EPISODE_STATE_SCORED: EpisodeState
EPISODE_STATE_FAILED: EpisodeState
EPISODE_STATE_CANCELLED: EpisodeState

class Submission(_message.Message):
    __slots__ = ("episode_id", "run_id", "kind", "group_id", "domain", "task", "pinned_step", "recorded")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PINNED_STEP_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    kind: _task_pb2.EpisodeKind
    group_id: str
    domain: str
    task: _task_pb2.Task
    pinned_step: int
    recorded: _task_pb2.RecordedEpisode
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., kind: _Optional[_Union[_task_pb2.EpisodeKind, str]] = ..., group_id: _Optional[str] = ..., domain: _Optional[str] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., pinned_step: _Optional[int] = ..., recorded: _Optional[_Union[_task_pb2.RecordedEpisode, _Mapping]] = ...) -> None: ...

class SubmitEpisodeResponse(_message.Message):
    __slots__ = ("episode_id", "created")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    created: bool
    def __init__(self, episode_id: _Optional[str] = ..., created: bool = ...) -> None: ...

class GetEpisodeRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class GetEpisodesRequest(_message.Message):
    __slots__ = ("episode_ids",)
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetEpisodesResponse(_message.Message):
    __slots__ = ("episodes", "missing")
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    episodes: _containers.RepeatedCompositeFieldContainer[EpisodeView]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, episodes: _Optional[_Iterable[_Union[EpisodeView, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class ListEpisodesRequest(_message.Message):
    __slots__ = ("run_id", "kind", "limit", "after")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    kind: _task_pb2.EpisodeKind
    limit: int
    after: str
    def __init__(self, run_id: _Optional[str] = ..., kind: _Optional[_Union[_task_pb2.EpisodeKind, str]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListEpisodesResponse(_message.Message):
    __slots__ = ("episodes",)
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    episodes: _containers.RepeatedCompositeFieldContainer[EpisodeView]
    def __init__(self, episodes: _Optional[_Iterable[_Union[EpisodeView, _Mapping]]] = ...) -> None: ...

class WatchEpisodeRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class CancelEpisodeRequest(_message.Message):
    __slots__ = ("episode_id", "reason")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    reason: str
    def __init__(self, episode_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class EpisodeView(_message.Message):
    __slots__ = ("submission", "state", "outcome", "answer", "trajectory", "score", "detail", "submitted_at", "changed_at", "turn_count", "sampled_tokens", "first_policy_step", "last_policy_step", "agent_wall_s", "agent", "agent_timeout_s", "max_turns", "traceparent", "tree_tokens", "branch_tokens")
    SUBMISSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    TURN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    AGENT_WALL_S_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AGENT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TREE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BRANCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    submission: Submission
    state: EpisodeState
    outcome: _task_pb2.Outcome
    answer: str
    trajectory: _blob_pb2.BlobRef
    score: _score_pb2.Score
    detail: str
    submitted_at: _timestamp_pb2.Timestamp
    changed_at: _timestamp_pb2.Timestamp
    turn_count: int
    sampled_tokens: int
    first_policy_step: int
    last_policy_step: int
    agent_wall_s: float
    agent: str
    agent_timeout_s: float
    max_turns: int
    traceparent: str
    tree_tokens: int
    branch_tokens: int
    def __init__(self, submission: _Optional[_Union[Submission, _Mapping]] = ..., state: _Optional[_Union[EpisodeState, str]] = ..., outcome: _Optional[_Union[_task_pb2.Outcome, str]] = ..., answer: _Optional[str] = ..., trajectory: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., score: _Optional[_Union[_score_pb2.Score, _Mapping]] = ..., detail: _Optional[str] = ..., submitted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., changed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., turn_count: _Optional[int] = ..., sampled_tokens: _Optional[int] = ..., first_policy_step: _Optional[int] = ..., last_policy_step: _Optional[int] = ..., agent_wall_s: _Optional[float] = ..., agent: _Optional[str] = ..., agent_timeout_s: _Optional[float] = ..., max_turns: _Optional[int] = ..., traceparent: _Optional[str] = ..., tree_tokens: _Optional[int] = ..., branch_tokens: _Optional[int] = ...) -> None: ...

class IssueCredentialRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class Credential(_message.Message):
    __slots__ = ("base_url", "api_key", "model", "expires_at")
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    base_url: str
    api_key: str
    model: str
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, base_url: _Optional[str] = ..., api_key: _Optional[str] = ..., model: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetTranscriptRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class Transcript(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[TranscriptNode]
    def __init__(self, nodes: _Optional[_Iterable[_Union[TranscriptNode, _Mapping]]] = ...) -> None: ...

class TranscriptNode(_message.Message):
    __slots__ = ("node_id", "parent_id", "sampled", "message_json", "token_count", "spans", "finish_reason", "mean_logprob", "infra")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_JSON_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    MEAN_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    INFRA_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    parent_id: int
    sampled: bool
    message_json: str
    token_count: int
    spans: _containers.RepeatedCompositeFieldContainer[WeightSpan]
    finish_reason: str
    mean_logprob: float
    infra: bool
    def __init__(self, node_id: _Optional[int] = ..., parent_id: _Optional[int] = ..., sampled: bool = ..., message_json: _Optional[str] = ..., token_count: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[WeightSpan, _Mapping]]] = ..., finish_reason: _Optional[str] = ..., mean_logprob: _Optional[float] = ..., infra: bool = ...) -> None: ...

class WeightSpan(_message.Message):
    __slots__ = ("start", "end", "policy_step", "policy_digest")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    policy_step: int
    policy_digest: str
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., policy_step: _Optional[int] = ..., policy_digest: _Optional[str] = ...) -> None: ...
