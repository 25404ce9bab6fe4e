"""The router's projections: workers, what they cache, and the newest policy of each run.

It believes signals only in order: a sequence that goes back is ignored, a gap or a new incarnation empties the index.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.kernel.clock import Clock
from services.kernel.logs import get_logger
from services.router.domain.index import BlockIndex
from services.router.domain.workers import Report, Want, Worker, why_not
from services.router.ports import Limits


@dataclass(frozen=True, slots=True)
class Stored:
    """A block that an engine stored: its names for it and its parent, and the ids (uint32, little endian)."""

    engine_hash: bytes
    parent: bytes
    token_ids: bytes
    salt: str


class Fleet:
    """All workers."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self.workers: dict[str, Worker] = {}
        self.pool = BlockIndex(limits.index_blocks)
        self.newest_step: dict[str, int] = {}
        self._changed = asyncio.Event()

    def changed(self) -> asyncio.Event:
        """Set at the next change that may let a waiting call go."""
        return self._changed

    def note_policy(self, run_id: str, step: int) -> None:
        """A policy was published."""
        if step > self.newest_step.get(run_id, -1):
            self.newest_step[run_id] = step
            self._tell()

    def report(self, report: Report) -> None:
        """A worker reported."""
        now_s = self._clock.monotonic()
        self._forget(now_s)
        worker = self.workers.get(report.worker_id)
        if worker is None:
            self.workers[report.worker_id] = Worker(report, now_s, self._limits.index_blocks)
            get_logger().info("worker.joined", worker_id=report.worker_id, engine_url=report.engine_url)
            self._tell()
            return
        before, silent_s = worker.report, now_s - worker.heard_s
        if not worker.heard(report, now_s):
            return
        if silent_s > self._limits.heartbeat_lost_s:
            worker.index.clear()
        shown = (report.state, report.run_id, report.policy_step)
        if silent_s > self._limits.heartbeat_lost_s or shown != (before.state, before.run_id, before.policy_step):
            self._tell()

    def blocks(
        self, worker_id: str, at: tuple[str, int], stored: Sequence[Stored], removed: Sequence[bytes], cleared: bool
    ) -> None:
        """A worker's cache changed; `at` is the signal's (incarnation, sequence)."""
        worker = self.workers.get(worker_id)
        if worker is None:
            return
        incarnation, sequence = at
        known_incarnation, known = worker.kv_at
        if incarnation == known_incarnation and sequence <= known:
            return
        if cleared or incarnation != known_incarnation or sequence != known + 1:
            worker.index.clear()
        worker.kv_at = at
        for engine_hash in removed:
            worker.index.removed(engine_hash)
        for block in stored:
            worker.index.stored(block.engine_hash, block.parent, block.token_ids, block.salt)

    def drop(self, worker_id: str) -> None:
        """Forget what a worker caches: it failed a call, or fell silent."""
        if worker_id in self.workers:
            self.workers[worker_id].index.clear()

    def judge(self, run_id: str, pinned_step: int | None) -> Mapping[str, str]:
        """Why each worker can't serve such a call; empty for those that can."""
        now_s, want = self._clock.monotonic(), Want(run_id, self.newest_step.get(run_id), pinned_step)
        verdicts: dict[str, str] = {}
        for worker_id, worker in self.workers.items():
            silent_s = now_s - worker.heard_s
            verdicts[worker_id] = why_not(worker, want, silent_s, self._limits.heartbeat_lost_s)
        return verdicts

    def _forget(self, now_s: float) -> None:
        """Let those go that were silent for longer than any lease lasts: on a cluster names don't come back."""
        for worker_id, worker in list(self.workers.items()):
            if now_s - worker.heard_s > max(self._limits.lease_s, self._limits.heartbeat_lost_s):
                del self.workers[worker_id]
                get_logger().info("worker.forgotten", worker_id=worker_id)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
