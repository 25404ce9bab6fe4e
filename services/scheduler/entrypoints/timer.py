"""Feeds clock ticks, only when a deadline is due; refuses to poll: it waits for the next deadline or for a change."""

import asyncio

from services.kernel.clock import Clock
from services.scheduler.application import Scheduler


class Timer:
    """A part. In its first `grace_s` it does not tick: events from while it was away are taken first."""

    def __init__(self, scheduler: Scheduler, clock: Clock, grace_s: float) -> None:
        self._scheduler, self._clock = scheduler, clock
        self._not_before_s = clock.monotonic() + grace_s

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self._scheduler.moved.clear()
            try:
                await asyncio.wait_for(self._scheduler.moved.wait(), self._wait_s())
            except TimeoutError:
                await self._scheduler.tick()

    def wake(self) -> None:
        """Look at the clock again: a set one has moved."""
        self._scheduler.moved.set()

    def due_s(self) -> float | None:
        """When the next tick is due, in seconds since 1970; None while nothing runs."""
        return self._scheduler.next_deadline_s()

    def _wait_s(self) -> float | None:
        due_s = self.due_s()
        if due_s is None:
            return None
        return max(0.0, due_s - self._clock.now().timestamp(), self._not_before_s - self._clock.monotonic())
