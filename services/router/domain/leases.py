"""Calls under way, by lease; and the last decisions, to be explained. Pure; the time is handed in, in seconds."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from services.router.domain.cost import Cost


@dataclass(frozen=True, slots=True)
class Considered:
    """One worker as it was seen when a call was routed; `cost` is None for one that could not serve."""

    worker_id: str
    why_not: str
    cost: Cost | None


@dataclass(slots=True)
class Lease:
    """A call that was sent to a worker. Times are of the router's stop watch."""

    lease_id: str
    call_id: str
    worker_id: str
    began_s: float
    deadline_s: float
    prompt_tokens: int
    running: int
    cost: Cost
    names: tuple[bytes, ...]
    considered: tuple[Considered, ...]
    reason: str
    actual_cached_tokens: int | None = field(default=None)

    @property
    def prefilled_s(self) -> float:
        """When its prefill should be over."""
        return self.began_s + self.cost.queue_s + self.cost.fetch_s + self.cost.prefill_s


class LeaseBook:
    """Leases under way, and the last `kept` of all."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._open: dict[str, Lease] = {}
        self._all: OrderedDict[str, Lease] = OrderedDict()
        self._by_call: dict[str, str] = {}

    def begin(self, lease: Lease) -> None:
        """A call goes out."""
        self._open[lease.lease_id] = self._all[lease.lease_id] = lease
        self._by_call[lease.call_id] = lease.lease_id
        while len(self._all) > self._kept:
            lease_id, old = self._all.popitem(last=False)
            if self._by_call.get(old.call_id) == lease_id:
                del self._by_call[old.call_id]

    def end(self, lease_id: str) -> Lease | None:
        """The call is over; None when that was known, or the lease never was."""
        return self._open.pop(lease_id, None)

    def lapsed(self, now_s: float) -> list[Lease]:
        """Leases past their deadline, which are taken out."""
        late = [lease for lease in self._open.values() if lease.deadline_s <= now_s]
        for lease in late:
            del self._open[lease.lease_id]
        return late

    def find(self, lease_id: str, call_id: str) -> Lease | None:
        """One of the last leases, by its id or by its call's."""
        return self._all.get(lease_id or self._by_call.get(call_id, ""))

    def queue_s(self, worker_id: str, now_s: float) -> float:
        """Seconds of prefill that a worker still has before it, by what was sent to it."""
        return sum(
            min(lease.cost.prefill_s + lease.cost.fetch_s, max(0.0, lease.prefilled_s - now_s))
            for lease in self._open.values()
            if lease.worker_id == worker_id
        )

    def being_prefilled(self, last_block: bytes, fits: Callable[[str], bool], now_s: float) -> Lease | None:
        """A call whose prompt ends in the same full block, and whose prefill on a fitting worker isn't over yet."""
        for lease in self._open.values():
            if lease.names and lease.names[-1] == last_block and lease.prefilled_s > now_s and fits(lease.worker_id):
                return lease
        return None
