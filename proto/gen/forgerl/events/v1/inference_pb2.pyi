from forgerl.options.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_STARTING: _ClassVar[WorkerState]
    WORKER_STATE_READY: _ClassVar[WorkerState]
    WORKER_STATE_SWAPPING: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_STARTING: WorkerState
WORKER_STATE_READY: WorkerState
WORKER_STATE_SWAPPING: WorkerState
WORKER_STATE_DRAINING: WorkerState

class WorkerReported(_message.Message):
    __slots__ = ("worker_id", "sequence", "incarnation", "state", "engine_url", "run_id", "policy_step", "policy_digest", "running_requests", "waiting_requests", "kv_usage", "block_tokens", "max_model_tokens", "cached_prompt_tokens_total", "prompt_tokens_total")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_URL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    sequence: int
    incarnation: str
    state: WorkerState
    engine_url: str
    run_id: str
    policy_step: int
    policy_digest: str
    running_requests: int
    waiting_requests: int
    kv_usage: float
    block_tokens: int
    max_model_tokens: int
    cached_prompt_tokens_total: int
    prompt_tokens_total: int
    def __init__(self, worker_id: _Optional[str] = ..., sequence: _Optional[int] = ..., incarnation: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., engine_url: _Optional[str] = ..., run_id: _Optional[str] = ..., policy_step: _Optional[int] = ..., policy_digest: _Optional[str] = ..., running_requests: _Optional[int] = ..., waiting_requests: _Optional[int] = ..., kv_usage: _Optional[float] = ..., block_tokens: _Optional[int] = ..., max_model_tokens: _Optional[int] = ..., cached_prompt_tokens_total: _Optional[int] = ..., prompt_tokens_total: _Optional[int] = ...) -> None: ...

class KvBlocksChanged(_message.Message):
    __slots__ = ("worker_id", "sequence", "incarnation", "stored", "removed", "cleared")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    sequence: int
    incarnation: str
    stored: _containers.RepeatedCompositeFieldContainer[KvBlockStored]
    removed: _containers.RepeatedScalarFieldContainer[bytes]
    cleared: bool
    def __init__(self, worker_id: _Optional[str] = ..., sequence: _Optional[int] = ..., incarnation: _Optional[str] = ..., stored: _Optional[_Iterable[_Union[KvBlockStored, _Mapping]]] = ..., removed: _Optional[_Iterable[bytes]] = ..., cleared: bool = ...) -> None: ...

class KvBlockStored(_message.Message):
    __slots__ = ("engine_hash", "parent_engine_hash", "token_ids", "salt", "tier")
    ENGINE_HASH_FIELD_NUMBER: _ClassVar[int]
    PARENT_ENGINE_HASH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    engine_hash: bytes
    parent_engine_hash: bytes
    token_ids: bytes
    salt: str
    tier: str
    def __init__(self, engine_hash: _Optional[bytes] = ..., parent_engine_hash: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., salt: _Optional[str] = ..., tier: _Optional[str] = ...) -> None: ...
