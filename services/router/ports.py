"""What the router needs from outside: time, ids and chance. Signals come to it; it asks nobody."""

from collections.abc import Callable
from dataclasses import dataclass

from services.kernel.clock import Clock, Ids


@dataclass(frozen=True, slots=True)
class Outside:
    """`draw` gives a number in [0, 1), for near ties."""

    clock: Clock
    ids: Ids
    draw: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """See settings, where each has its meaning and unit."""

    heartbeat_lost_s: float
    lease_s: float
    near_tie: float
    hold_min_s: float
    index_blocks: int
    pool_chunk_tokens: int
    cache_error_alarm_tokens: float
