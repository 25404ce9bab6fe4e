import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetCapacityRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class Capacity(_message.Message):
    __slots__ = ("queued_items", "in_flight_items", "wanted_items", "wanted_by_domain", "target_by_domain", "fleet_episodes")
    class WantedByDomainEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TargetByDomainEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    WANTED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    WANTED_BY_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_BY_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    FLEET_EPISODES_FIELD_NUMBER: _ClassVar[int]
    queued_items: int
    in_flight_items: int
    wanted_items: int
    wanted_by_domain: _containers.ScalarMap[str, int]
    target_by_domain: _containers.ScalarMap[str, int]
    fleet_episodes: int
    def __init__(self, queued_items: _Optional[int] = ..., in_flight_items: _Optional[int] = ..., wanted_items: _Optional[int] = ..., wanted_by_domain: _Optional[_Mapping[str, int]] = ..., target_by_domain: _Optional[_Mapping[str, int]] = ..., fleet_episodes: _Optional[int] = ...) -> None: ...

class GetWindowRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class WindowState(_message.Message):
    __slots__ = ("head", "window_items", "queue_items", "in_flight_items", "items", "expected_stall_share", "measured_stall_share", "wanted_mix", "achieved_mix")
    class WantedMixEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class AchievedMixEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    HEAD_FIELD_NUMBER: _ClassVar[int]
    WINDOW_ITEMS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STALL_SHARE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_STALL_SHARE_FIELD_NUMBER: _ClassVar[int]
    WANTED_MIX_FIELD_NUMBER: _ClassVar[int]
    ACHIEVED_MIX_FIELD_NUMBER: _ClassVar[int]
    head: int
    window_items: int
    queue_items: int
    in_flight_items: int
    items: _containers.RepeatedCompositeFieldContainer[WindowItem]
    expected_stall_share: float
    measured_stall_share: float
    wanted_mix: _containers.ScalarMap[str, float]
    achieved_mix: _containers.ScalarMap[str, float]
    def __init__(self, head: _Optional[int] = ..., window_items: _Optional[int] = ..., queue_items: _Optional[int] = ..., in_flight_items: _Optional[int] = ..., items: _Optional[_Iterable[_Union[WindowItem, _Mapping]]] = ..., expected_stall_share: _Optional[float] = ..., measured_stall_share: _Optional[float] = ..., wanted_mix: _Optional[_Mapping[str, float]] = ..., achieved_mix: _Optional[_Mapping[str, float]] = ...) -> None: ...

class WindowItem(_message.Message):
    __slots__ = ("position", "group_id", "domain", "state", "members", "terminal_members")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    position: int
    group_id: str
    domain: str
    state: str
    members: int
    terminal_members: int
    def __init__(self, position: _Optional[int] = ..., group_id: _Optional[str] = ..., domain: _Optional[str] = ..., state: _Optional[str] = ..., members: _Optional[int] = ..., terminal_members: _Optional[int] = ...) -> None: ...

class ExplainEpisodeRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class EpisodeLedger(_message.Message):
    __slots__ = ("episode_id", "run_id", "lines", "verdict")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_id: str
    lines: _containers.RepeatedCompositeFieldContainer[LedgerLine]
    verdict: str
    def __init__(self, episode_id: _Optional[str] = ..., run_id: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[LedgerLine, _Mapping]]] = ..., verdict: _Optional[str] = ...) -> None: ...

class LedgerLine(_message.Message):
    __slots__ = ("time", "event_id", "fact")
    TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    FACT_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    event_id: str
    fact: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_id: _Optional[str] = ..., fact: _Optional[str] = ...) -> None: ...

class GetLedgerRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class PruneEpisodesRequest(_message.Message):
    __slots__ = ("run_id", "keep_steps")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_STEPS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    keep_steps: int
    def __init__(self, run_id: _Optional[str] = ..., keep_steps: _Optional[int] = ...) -> None: ...

class PruneEpisodesResponse(_message.Message):
    __slots__ = ("steps", "episodes", "event_ids")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    EVENT_IDS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    episodes: int
    event_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, steps: _Optional[int] = ..., episodes: _Optional[int] = ..., event_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RunLedger(_message.Message):
    __slots__ = ("submitted", "trained", "dropped", "in_flight", "evaluations", "batches", "out_of_order_max", "out_of_order_mean", "staleness_mean", "staleness_max", "wanted_mix", "achieved_mix", "measured_stall_share", "in_flight_by_stage", "balanced", "domains", "evaluations_ended", "evaluations_in_flight", "lag_items_max", "lag_items_mean", "partial_episodes", "window_items", "fleet_episodes", "pruned")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class WantedMixEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class AchievedMixEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class InFlightByStageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DomainsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DomainLedger
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DomainLedger, _Mapping]] = ...) -> None: ...
    class EvaluationsEndedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDER_MAX_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDER_MEAN_FIELD_NUMBER: _ClassVar[int]
    STALENESS_MEAN_FIELD_NUMBER: _ClassVar[int]
    STALENESS_MAX_FIELD_NUMBER: _ClassVar[int]
    WANTED_MIX_FIELD_NUMBER: _ClassVar[int]
    ACHIEVED_MIX_FIELD_NUMBER: _ClassVar[int]
    MEASURED_STALL_SHARE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_BY_STAGE_FIELD_NUMBER: _ClassVar[int]
    BALANCED_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_ENDED_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LAG_ITEMS_MAX_FIELD_NUMBER: _ClassVar[int]
    LAG_ITEMS_MEAN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_EPISODES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_ITEMS_FIELD_NUMBER: _ClassVar[int]
    FLEET_EPISODES_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    submitted: int
    trained: int
    dropped: _containers.ScalarMap[str, int]
    in_flight: int
    evaluations: int
    batches: int
    out_of_order_max: int
    out_of_order_mean: float
    staleness_mean: float
    staleness_max: int
    wanted_mix: _containers.ScalarMap[str, float]
    achieved_mix: _containers.ScalarMap[str, float]
    measured_stall_share: float
    in_flight_by_stage: _containers.ScalarMap[str, int]
    balanced: bool
    domains: _containers.MessageMap[str, DomainLedger]
    evaluations_ended: _containers.ScalarMap[str, int]
    evaluations_in_flight: int
    lag_items_max: int
    lag_items_mean: float
    partial_episodes: int
    window_items: int
    fleet_episodes: int
    pruned: int
    def __init__(self, submitted: _Optional[int] = ..., trained: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., in_flight: _Optional[int] = ..., evaluations: _Optional[int] = ..., batches: _Optional[int] = ..., out_of_order_max: _Optional[int] = ..., out_of_order_mean: _Optional[float] = ..., staleness_mean: _Optional[float] = ..., staleness_max: _Optional[int] = ..., wanted_mix: _Optional[_Mapping[str, float]] = ..., achieved_mix: _Optional[_Mapping[str, float]] = ..., measured_stall_share: _Optional[float] = ..., in_flight_by_stage: _Optional[_Mapping[str, int]] = ..., balanced: bool = ..., domains: _Optional[_Mapping[str, DomainLedger]] = ..., evaluations_ended: _Optional[_Mapping[str, int]] = ..., evaluations_in_flight: _Optional[int] = ..., lag_items_max: _Optional[int] = ..., lag_items_mean: _Optional[float] = ..., partial_episodes: _Optional[int] = ..., window_items: _Optional[int] = ..., fleet_episodes: _Optional[int] = ..., pruned: _Optional[int] = ...) -> None: ...

class DomainLedger(_message.Message):
    __slots__ = ("wanted_share", "submitted_groups", "submitted_share", "consumed_items", "consumed_share", "taken_items", "dropped_items")
    class DroppedItemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WANTED_SHARE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_SHARE_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_SHARE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_ITEMS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    wanted_share: float
    submitted_groups: int
    submitted_share: float
    consumed_items: int
    consumed_share: float
    taken_items: int
    dropped_items: _containers.ScalarMap[str, int]
    def __init__(self, wanted_share: _Optional[float] = ..., submitted_groups: _Optional[int] = ..., submitted_share: _Optional[float] = ..., consumed_items: _Optional[int] = ..., consumed_share: _Optional[float] = ..., taken_items: _Optional[int] = ..., dropped_items: _Optional[_Mapping[str, int]] = ...) -> None: ...
