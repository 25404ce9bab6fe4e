"""Feeds clock ticks, only when a deadline is due; refuses to poll: it waits for the next deadline or for a change."""

import asyncio

from services.kernel.clock import Clock
from services.scheduler.application import Scheduler


class Timer:
    """A part."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler, self._clock = scheduler, clock

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self._scheduler.moved.clear()
            due_s = self._scheduler.next_deadline_s()
            wait_s = None if due_s is None else max(0.0, due_s - self._clock.now().timestamp())
            try:
                await asyncio.wait_for(self._scheduler.moved.wait(), wait_s)
            except TimeoutError:
                await self._scheduler.tick()
