from forgerl.common.v1 import blob_pb2 as _blob_pb2
from forgerl.common.v1 import run_pb2 as _run_pb2
from forgerl.common.v1 import task_pb2 as _task_pb2
from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunCreated(_message.Message):
    __slots__ = ("run_id", "spec")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    spec: _run_pb2.RunSpec
    def __init__(self, run_id: _Optional[str] = ..., spec: _Optional[_Union[_run_pb2.RunSpec, _Mapping]] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("run_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RunResumed(_message.Message):
    __slots__ = ("run_id", "end")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    end: _run_pb2.EndSpec
    def __init__(self, run_id: _Optional[str] = ..., end: _Optional[_Union[_run_pb2.EndSpec, _Mapping]] = ...) -> None: ...

class RunRemoved(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class EpisodeSubmitted(_message.Message):
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

class EpisodeCancelled(_message.Message):
    __slots__ = ("episode_id", "run_id", "reason")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    reason: str
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TrajectorySealed(_message.Message):
    __slots__ = ("episode_id", "run_id", "trajectory", "node_count", "turn_count", "branch_count", "sampled_tokens", "tree_tokens", "branch_tokens", "first_policy_step", "last_policy_step")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TURN_COUNT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TREE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BRANCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    trajectory: _blob_pb2.BlobRef
    node_count: int
    turn_count: int
    branch_count: int
    sampled_tokens: int
    tree_tokens: int
    branch_tokens: int
    first_policy_step: int
    last_policy_step: int
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., trajectory: _Optional[_Union[_blob_pb2.BlobRef, _Mapping]] = ..., node_count: _Optional[int] = ..., turn_count: _Optional[int] = ..., branch_count: _Optional[int] = ..., sampled_tokens: _Optional[int] = ..., tree_tokens: _Optional[int] = ..., branch_tokens: _Optional[int] = ..., first_policy_step: _Optional[int] = ..., last_policy_step: _Optional[int] = ...) -> None: ...
