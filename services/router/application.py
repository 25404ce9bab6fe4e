"""Routing a call: wait for a worker that may serve it, take the cheapest, keep a lease until the call is over.

It refuses to send a call to an engine that is not on the wanted policy, however long that takes.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from services.kernel.errors import NotFound, Transient
from services.kernel.logs import get_logger
from services.router.domain.chain import TOKEN_BYTES, chain
from services.router.domain.cost import Call, choose, cost_of
from services.router.domain.leases import Considered, Lease, LeaseBook
from services.router.domain.speed import Ended
from services.router.domain.workers import Report, Worker
from services.router.fleet import Fleet
from services.router.ports import Limits, Outside

_LEASES_KEPT = 2048
_ALARM_LEASES = 32


@dataclass(frozen=True, slots=True)
class RouteOrder:
    """A call to be routed. `token_ids`: uint32, little endian."""

    call_id: str
    run_id: str
    group_id: str
    token_ids: bytes
    max_new_tokens: int
    pinned_step: int | None
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. `result`: done, refused, aborted or failed."""

    result: str
    cached_tokens: int
    prompt_tokens: int
    new_tokens: int
    prefill_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease, and its worker as it was reported when the lease was granted."""

    lease: Lease
    report: Report


class Router:
    """All calls under way."""

    def __init__(self, fleet: Fleet, outside: Outside, limits: Limits) -> None:
        self._fleet, self._limits = fleet, limits
        self._clock, self._ids, self._draw = outside.clock, outside.ids, outside.draw
        self._leases = LeaseBook(_LEASES_KEPT)
        self._ended = asyncio.Event()

    async def route(self, order: RouteOrder, timeout_s: float) -> Granted:
        """A lease on the cheapest worker that may serve. Raises Transient when there is none in time."""
        deadline_s = self._clock.monotonic() + timeout_s
        held = False
        while True:
            changed = self._fleet.changed()
            self._lapse()
            verdicts = self._fleet.judge(order.run_id, order.pinned_step)
            eligible = [worker_id for worker_id, reason in verdicts.items() if not reason]
            # Workers that just refused the call are better than none.
            preferred = [worker_id for worker_id in eligible if worker_id not in order.avoid] or eligible
            left_s = deadline_s - self._clock.monotonic()
            if preferred and not held and await self._hold(order, preferred, left_s):
                held = True
                continue
            if preferred:
                return self._grant(order, preferred, verdicts)
            if not await _set_within(changed, left_s):
                told = "; ".join(f"{worker_id}: {reason}" for worker_id, reason in sorted(verdicts.items()))
                raise Transient(f"no engine for run {order.run_id} within {timeout_s:.1f} s ({told or 'none known'})")

    def complete(self, lease_id: str, outcome: Outcome) -> None:
        """End a lease; a repeat, or one that has lapsed, changes nothing."""
        lease = self._leases.end(lease_id)
        if lease is None:
            return
        self._release(lease)
        worker = self._fleet.workers.get(lease.worker_id)
        if worker is None:
            return
        if outcome.result == "failed":
            self._fleet.drop(lease.worker_id)
        elif outcome.result == "done":
            self._learn(worker, lease, outcome)

    def explain(self, lease_id: str, call_id: str) -> Lease:
        """One of the last leases. Raises NotFound."""
        lease = self._leases.find(lease_id, call_id)
        if lease is None:
            raise NotFound(f"no lease {lease_id or call_id!r} among the last {_LEASES_KEPT}")
        return lease

    async def _hold(self, order: RouteOrder, workers: list[str], left_s: float) -> bool:
        """Wait for the prefill of a group's first call with this very prompt; False when there is none to wait for."""
        if not order.group_id:
            return False
        for worker_id in workers:
            worker = self._fleet.workers[worker_id]
            names = chain(worker.report.policy_digest, order.token_ids, worker.report.block_tokens)
            now_s = self._clock.monotonic()
            first = self._leases.being_prefilled(names[-1], worker_id.__eq__, now_s) if names else None
            if first is not None and first.cost.prefill_s >= self._limits.hold_min_s:
                await _set_within(self._ended, min(first.prefilled_s - now_s, left_s))
                return True
        return False

    def _grant(self, order: RouteOrder, workers: list[str], verdicts: Mapping[str, str]) -> Granted:
        now_s = self._clock.monotonic()
        considered = {worker_id: self._consider(order, worker_id, now_s) for worker_id in workers}
        costs = [(worker_id, one.cost) for worker_id, (one, _) in considered.items() if one.cost is not None]
        chosen = choose(costs, self._limits.near_tie, self._draw())
        one, names = considered[chosen]
        assert one.cost is not None
        worker = self._fleet.workers[chosen]
        rest = [
            Considered(worker_id, reason or "refused this call", None)
            for worker_id, reason in verdicts.items()
            if worker_id not in considered
        ]
        cheapest = min(costs, key=lambda pair: pair[1].total_s)[0]
        lease = Lease(
            lease_id=self._ids.new("lease"),
            call_id=order.call_id,
            worker_id=chosen,
            began_s=now_s,
            deadline_s=now_s + self._limits.lease_s,
            prompt_tokens=len(order.token_ids) // TOKEN_BYTES,
            running=worker.running,
            cost=one.cost,
            names=tuple(names),
            considered=(*(pair[0] for pair in considered.values()), *rest),
            reason="cheapest" if chosen == cheapest else "near tie",
        )
        self._leases.begin(lease)
        worker.leases += 1
        worker.index.add(names)
        return Granted(lease, worker.report)

    def _consider(self, order: RouteOrder, worker_id: str, now_s: float) -> tuple[Considered, list[bytes]]:
        worker = self._fleet.workers[worker_id]
        block_tokens = worker.report.block_tokens
        names = chain(worker.report.policy_digest, order.token_ids, block_tokens)
        chunk = self._limits.pool_chunk_tokens
        pooled = self._fleet.pool.hit_blocks(names) * block_tokens if chunk else 0
        call = Call(
            prompt_tokens=len(order.token_ids) // TOKEN_BYTES,
            max_new_tokens=order.max_new_tokens,
            own_hit=worker.index.hit_blocks(names) * block_tokens,
            pool_hit=pooled // chunk * chunk if chunk else 0,
        )
        queue_s = self._leases.queue_s(worker_id, now_s) + worker.foreign * worker.speed.prefill_s(1, 0)
        return Considered(worker_id, "", cost_of(call, worker.speed, queue_s, worker.running)), names

    def _learn(self, worker: Worker, lease: Lease, outcome: Outcome) -> None:
        lease.actual_cached_tokens = outcome.cached_tokens
        self._fleet.pool.add(lease.names)
        fetched = lease.cost.fetched_tokens if outcome.cached_tokens >= lease.cost.hit_tokens else 0
        worker.speed.learn(
            Ended(
                prompt_tokens=outcome.prompt_tokens or lease.prompt_tokens,
                cached_tokens=outcome.cached_tokens,
                new_tokens=outcome.new_tokens,
                prefill_s=outcome.prefill_s,
                total_s=outcome.total_s,
                running=lease.running,
                fetched_tokens=fetched,
            )
        )
        worker.cache_errors.append(abs(outcome.cached_tokens - lease.cost.hit_tokens))
        error = worker.cache_error_tokens
        if len(worker.cache_errors) >= _ALARM_LEASES and error > self._limits.cache_error_alarm_tokens:
            get_logger().warning("cache.mispredicted", worker_id=lease.worker_id, mean_error_tokens=round(error, 1))
            worker.cache_errors.clear()
            self._fleet.drop(lease.worker_id)

    def _lapse(self) -> None:
        for lease in self._leases.lapsed(self._clock.monotonic()):
            get_logger().warning("lease.lapsed", lease_id=lease.lease_id, worker_id=lease.worker_id)
            self._release(lease)

    def _release(self, lease: Lease) -> None:
        worker = self._fleet.workers.get(lease.worker_id)
        if worker is not None:
            worker.leases = max(0, worker.leases - 1)
        self._ended.set()
        self._ended = asyncio.Event()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
    return event.is_set()
