"""What serving a call by a worker would cost, and which worker to take. Pure; randomness is handed in.

cost = T_queue + min over sources in {none, engine, l3} of [T_fetch(source) + T_prefill(n, hit)] + decode pressure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.router.domain.speed import Speed


@dataclass(frozen=True, slots=True)
class Call:
    """Lengths of a call in tokens. `own_hit`, `pool_hit`: prefix that the worker, or the pool, is believed to hold."""

    prompt_tokens: int
    max_new_tokens: int
    own_hit: int
    pool_hit: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and the source of the KV that makes them least."""

    source: str
    hit_tokens: int
    fetched_tokens: int
    queue_s: float
    fetch_s: float
    prefill_s: float
    decode_s: float

    @property
    def total_s(self) -> float:
        """The sum."""
        return self.queue_s + self.fetch_s + self.prefill_s + self.decode_s


def cost_of(call: Call, speed: Speed, queue_s: float, running: int) -> Cost:
    """The cheapest way for one worker."""
    decode_s = speed.decode_s(call.max_new_tokens, running)
    fetched = max(0, call.pool_hit - call.own_hit)
    ways: list[Cost] = []
    for source, hit, fetch in (("none", 0, 0), ("engine", call.own_hit, 0), ("l3", call.pool_hit, fetched)):
        if source == "none" or hit > (call.own_hit if source == "l3" else 0):
            prefill_s = speed.prefill_s(call.prompt_tokens - hit, hit)
            ways.append(Cost(source, hit, fetch, queue_s, speed.fetch_s(fetch), prefill_s, decode_s))
    return min(ways, key=lambda way: way.total_s)


def choose(costs: Sequence[tuple[str, Cost]], near_tie: float, draw: float) -> str:
    """The worker to take: the cheapest, or one of those within a share `near_tie` of it by `draw` in [0, 1).

    The cheaper of two near ties is the likelier; `costs` must not be empty.
    """
    best_s = min(cost.total_s for _, cost in costs)
    near = sorted((worker, best_s / cost.total_s) for worker, cost in costs if cost.total_s <= best_s * (1 + near_tie))
    if best_s <= 0 or len(near) == 1:
        return near[0][0]
    at = draw * sum(weight for _, weight in near)
    for worker, weight in near:
        at -= weight
        if at < 0:
            return worker
    return near[-1][0]
