from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RouteRequest(_message.Message):
    __slots__ = ("call_id", "episode_id", "run_id", "group_id", "token_ids", "max_new_tokens", "pinned_step", "avoid_worker_ids")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PINNED_STEP_FIELD_NUMBER: _ClassVar[int]
    AVOID_WORKER_IDS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    episode_id: str
    run_id: str
    group_id: str
    token_ids: bytes
    max_new_tokens: int
    pinned_step: int
    avoid_worker_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, call_id: _Optional[str] = ..., episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., group_id: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., max_new_tokens: _Optional[int] = ..., pinned_step: _Optional[int] = ..., avoid_worker_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("lease_id", "worker_id", "engine_url", "policy_step", "policy_digest", "predicted_cached_tokens", "deadline_s")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_URL_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    worker_id: str
    engine_url: str
    policy_step: int
    policy_digest: str
    predicted_cached_tokens: int
    deadline_s: float
    def __init__(self, lease_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., engine_url: _Optional[str] = ..., policy_step: _Optional[int] = ..., policy_digest: _Optional[str] = ..., predicted_cached_tokens: _Optional[int] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("lease_id", "cached_tokens", "prompt_tokens", "new_tokens", "prefill_s", "total_s", "result")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    cached_tokens: int
    prompt_tokens: int
    new_tokens: int
    prefill_s: float
    total_s: float
    result: str
    def __init__(self, lease_id: _Optional[str] = ..., cached_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., new_tokens: _Optional[int] = ..., prefill_s: _Optional[float] = ..., total_s: _Optional[float] = ..., result: _Optional[str] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("lease_id", "call_id")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    call_id: str
    def __init__(self, lease_id: _Optional[str] = ..., call_id: _Optional[str] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("lease_id", "call_id", "candidates", "chosen_worker_id", "reason", "predicted_cached_tokens", "actual_cached_tokens")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    call_id: str
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    chosen_worker_id: str
    reason: str
    predicted_cached_tokens: int
    actual_cached_tokens: int
    def __init__(self, lease_id: _Optional[str] = ..., call_id: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., chosen_worker_id: _Optional[str] = ..., reason: _Optional[str] = ..., predicted_cached_tokens: _Optional[int] = ..., actual_cached_tokens: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("worker_id", "eligible", "why_not", "queue_s", "source", "hit_tokens", "fetch_s", "prefill_s", "decode_s", "total_s")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FETCH_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_S_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    eligible: bool
    why_not: str
    queue_s: float
    source: str
    hit_tokens: int
    fetch_s: float
    prefill_s: float
    decode_s: float
    total_s: float
    def __init__(self, worker_id: _Optional[str] = ..., eligible: bool = ..., why_not: _Optional[str] = ..., queue_s: _Optional[float] = ..., source: _Optional[str] = ..., hit_tokens: _Optional[int] = ..., fetch_s: _Optional[float] = ..., prefill_s: _Optional[float] = ..., decode_s: _Optional[float] = ..., total_s: _Optional[float] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerView]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerView, _Mapping]]] = ...) -> None: ...

class WorkerView(_message.Message):
    __slots__ = ("worker_id", "engine_url", "state", "run_id", "policy_step", "policy_digest", "leases", "indexed_blocks", "heartbeat_age_s", "prefill_a_s", "prefill_b_s", "prefill_c_s", "cache_error_tokens")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_URL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_STEP_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    INDEXED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_A_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_B_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_C_S_FIELD_NUMBER: _ClassVar[int]
    CACHE_ERROR_TOKENS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    engine_url: str
    state: str
    run_id: str
    policy_step: int
    policy_digest: str
    leases: int
    indexed_blocks: int
    heartbeat_age_s: float
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    cache_error_tokens: float
    def __init__(self, worker_id: _Optional[str] = ..., engine_url: _Optional[str] = ..., state: _Optional[str] = ..., run_id: _Optional[str] = ..., policy_step: _Optional[int] = ..., policy_digest: _Optional[str] = ..., leases: _Optional[int] = ..., indexed_blocks: _Optional[int] = ..., heartbeat_age_s: _Optional[float] = ..., prefill_a_s: _Optional[float] = ..., prefill_b_s: _Optional[float] = ..., prefill_c_s: _Optional[float] = ..., cache_error_tokens: _Optional[float] = ...) -> None: ...
