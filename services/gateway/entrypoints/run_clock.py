"""Ends runs whose time is up, also when nothing else happens.

It refuses to poll: it sleeps until the deadline of the running run, or until runs change.
"""

import asyncio
import contextlib

from services.gateway.application import Desk
from services.gateway.folds import Folds
from services.gateway.views import RUNS, Views
from services.kernel.clock import Clock


class RunClock:
    """A part."""

    def __init__(self, desk: Desk, folds: Folds, views: Views, clock: Clock) -> None:
        self._desk, self._folds, self._views, self._clock = desk, folds, views, clock

    async def run(self) -> None:
        """Watch until cancelled."""
        changed = self._views.subscribe(RUNS)
        try:
            while True:
                changed.clear()
                left_s = await self._left_s()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), timeout=left_s)
        finally:
            self._views.unsubscribe(RUNS, changed)

    async def _left_s(self) -> float | None:
        """Seconds to the next deadline; runs that are due are ended first."""
        left: list[float] = []
        for run_id in self._views.run_ids:
            run = await self._folds.run(run_id)
            if run.reached(self._clock.now()):
                await self._desk.end_if_due(run_id, self._clock)
            elif (deadline := run.deadline()) is not None:
                left.append((deadline - self._clock.now()).total_seconds())
        return max(0.0, min(left)) if left else None
