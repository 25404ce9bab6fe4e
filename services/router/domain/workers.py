"""What is known of the workers, folded from their reports. Pure; the time is handed in, in seconds."""

from collections import deque
from dataclasses import dataclass

from services.router.domain.index import BlockIndex
from services.router.domain.speed import Speed

_ERRORS_KEPT = 64


@dataclass(frozen=True, slots=True)
class Report:
    """One report, as it came."""

    worker_id: str
    incarnation: str
    sequence: int
    state: str
    engine_url: str
    run_id: str
    policy_step: int
    policy_digest: str
    requests: int
    block_tokens: int


class Worker:
    """One worker."""

    def __init__(self, report: Report, now_s: float, index_blocks: int) -> None:
        self.report, self.heard_s = report, now_s
        self.index, self.speed = BlockIndex(index_blocks), Speed()
        self.leases = 0
        # Requests in the engine that no lease of ours stands for.
        self.foreign = 0
        self.kv_at: tuple[str, int] = ("", 0)
        self.cache_errors: deque[int] = deque(maxlen=_ERRORS_KEPT)

    def heard(self, report: Report, now_s: float) -> bool:
        """Take a report in; False for one that is older than what is known."""
        known = self.report
        if report.incarnation == known.incarnation and report.sequence <= known.sequence:
            return False
        if report.incarnation != known.incarnation or report.policy_digest != known.policy_digest:
            self.index.clear()
        self.report, self.heard_s = report, now_s
        self.foreign = max(0, report.requests - self.leases)
        return True

    @property
    def running(self) -> int:
        """Calls believed to be in the engine."""
        return self.leases + self.foreign

    @property
    def cache_error_tokens(self) -> float:
        """Mean |predicted - actual| cached tokens of the last leases."""
        return sum(self.cache_errors) / len(self.cache_errors) if self.cache_errors else 0.0


@dataclass(frozen=True, slots=True)
class Want:
    """Which policy a call needs. `newest_step` is None before the run's first policy."""

    run_id: str
    newest_step: int | None
    pinned_step: int | None


def why_not(worker: Worker, want: Want, silent_s: float, lost_s: float) -> str:
    """Why a worker can't serve; empty when it can. `silent_s`: since its last report."""
    report = worker.report
    if silent_s > lost_s:
        return f"no heartbeat for {silent_s:.1f} s"
    if report.state != "ready":
        return report.state
    if report.run_id != want.run_id:
        return f"serves run {report.run_id}"
    wanted = want.newest_step if want.pinned_step is None else want.pinned_step
    if wanted is None:
        return f"run {want.run_id} has no policy yet"
    return "" if report.policy_step == wanted else f"serves step {report.policy_step}, wanted is {wanted}"
