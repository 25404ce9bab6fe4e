"""The sidecar: keeps its engine on the newest policy and tells everyone how it is.

A swap interrupts: the gate closes, running calls end with their output so far, weights are loaded, the prefix cache
is cleared, the gate opens for the new digest. It refuses to open the gate for weights that it did not load itself.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from services.inference.domain.engine import Seen, serves, state_of
from services.inference.domain.policies import Policy, PolicyBook
from services.inference.ports import Busy, Outside
from services.kernel.errors import ForgeError, Permanent
from services.kernel.logs import get_logger


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between reports, seconds without an answer after which an engine is lost, tokens of the first prompt."""

    heartbeat_s: float
    silent_s: float
    warm_up_tokens: int


class Sidecar:
    """A part: two loops, one that looks and reports, one that swaps."""

    def __init__(self, outside: Outside, pace: Pace) -> None:
        self._engine, self._policies = outside.engine, outside.policies
        self._signals, self._turns = outside.signals, outside.turns
        self._pace, self._clock = pace, outside.clock
        self._book = PolicyBook()
        self._seen: Seen | None = None
        self._answered_s = self._clock.monotonic()
        self._swapping = self._draining = False
        self._refused: set[str] = set()
        self._changed = asyncio.Event()
        self._look_now = asyncio.Event()

    def follow(self, book: PolicyBook) -> None:
        """Serve what this book desires, as soon as can be."""
        self._book = book
        self._changed.set()

    async def run(self) -> None:
        """Look, report and swap until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._reconcile())

    async def drain(self, deadline_s: float) -> int:
        """Take no new calls for the rest of this process's life; how many calls were ended at the deadline."""
        self._draining = True
        ended = await self._engine.close(wait_s=deadline_s)
        get_logger().info("engine.drained", aborted=ended)
        self._look_now.set()
        return ended

    async def _beat(self) -> None:
        while True:
            self._look_now.clear()
            next_s = self._clock.monotonic() + self._pace.heartbeat_s
            await self._look_and_report()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), max(0.0, next_s - self._clock.monotonic()))

    async def _look_and_report(self) -> None:
        before, now_s = self._seen, self._clock.monotonic()
        try:
            self._seen, self._answered_s = await self._engine.look(), now_s
        except Busy as error:
            # Two busy cores can keep an engine from answering for seconds: what was seen last still holds.
            if now_s - self._answered_s > self._pace.silent_s:
                self._lose(error)
        except ForgeError as error:
            self._lose(error)
        if before is None and self._seen is not None:
            get_logger().info("engine.found", boot_id=self._seen.gate.boot_id)
        if not serves(self._seen, self._book.desired()):
            self._changed.set()
        await self._report()

    def _lose(self, error: ForgeError) -> None:
        if self._seen is not None:
            get_logger().warning("engine.lost", error=error.message)
        self._seen = None

    async def _report(self) -> None:
        await self._signals.report(state_of(self._seen, swapping=self._swapping, draining=self._draining), self._seen)

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            policy = self._book.desired()
            if policy is None or self._draining or self._seen is None or policy.digest in self._refused:
                continue
            if serves(self._seen, policy):
                continue
            try:
                await self._swap()
            except Permanent as error:
                self._refused.add(policy.digest)
                get_logger().error("policy.refused", run_id=policy.run_id, step=policy.step, error=error.message)
            except ForgeError as error:
                # The next look, a heartbeat from now, sets `changed` again.
                get_logger().warning("swap.failed", step=policy.step, error=error.message)

    async def _swap(self) -> None:
        async with self._turns.turn():
            # Read again: while waiting for the turn a newer policy may have come.
            policy = self._book.desired()
            if policy is None:
                return
            folder = await self._policies.fetch(policy)
            self._swapping = True
            try:
                before = await self._interrupt(policy, folder)
            finally:
                self._swapping = False
                await self._look_and_report()
        # The previous one is kept: another engine may still be on it.
        newest = {known.digest for known in self._book.newest.values()}
        await self._policies.prune(frozenset({*newest, policy.digest, before}))

    async def _interrupt(self, policy: Policy, folder: str) -> str:
        """Swap; the digest served before."""
        began_s = self._clock.monotonic()
        before = (await self._engine.look()).gate
        aborted = await self._engine.close(wait_s=0.0)
        await self._report()
        await self._engine.load(folder, policy.digest)
        if not before.policy_digest:
            await self._engine.warm_up(self._pace.warm_up_tokens)
        await self._engine.open(policy, before.boot_id)
        seconds = round(self._clock.monotonic() - began_s, 3)
        get_logger().info("policy.swapped", run_id=policy.run_id, step=policy.step, aborted=aborted, seconds=seconds)
        return before.policy_digest
