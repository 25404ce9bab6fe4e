"""The workflow's effects, as activities: each translates and calls the application. It refuses to decide anything."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from temporalio import activity

from services.environments.interface import InvalidTask, UnknownEnvironment
from services.kernel.clock import every
from services.kernel.errors import Permanent
from services.rollout.application import Episodes
from services.rollout.domain.episode import (
    Ending,
    EpisodePlan,
    EpisodeStart,
    ProgramRequest,
    TurnRequest,
    TurnServed,
)
from services.rollout.entrypoints.workflow import OPEN_EPISODE, RECORD_END, RUN_PROGRAM, SERVE_TURN
from services.rollout.ports import EpisodeSealed

HEARTBEAT_S = 2.0
R = TypeVar("R")


class EpisodeActivities:
    """One object a worker process."""

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes

    def all(self) -> Sequence[Callable[..., Any]]:
        """What a worker registers."""
        return (self.open_episode, self.serve_turn, self.run_program, self.record_end)

    @activity.defn(name=OPEN_EPISODE)
    async def open_episode(self, start: EpisodeStart) -> EpisodePlan:
        """Find out what is to be run; record the start."""
        return await patiently(self._episodes.open_episode(start), start.patience_s)

    @activity.defn(name=SERVE_TURN)
    async def serve_turn(self, request: TurnRequest) -> TurnServed:
        """The model, then its tools."""
        return await patiently(self._episodes.serve_turn(request), request.patience_s)

    @activity.defn(name=RUN_PROGRAM)
    async def run_program(self, request: ProgramRequest) -> Ending:
        """A black box to its end; an attempt is numbered as Temporal numbers it."""
        beating = asyncio.create_task(beat())
        try:
            return await bad_tasks_are_permanent(self._episodes.run_program(request, activity.info().attempt))
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    @activity.defn(name=RECORD_END)
    async def record_end(self, start: EpisodeStart, ending: Ending) -> None:
        """Write down the end."""
        await self._episodes.record_end(start, ending)


async def patiently(step: Awaitable[R], patience_s: float) -> R:
    """The step's result. Raises Permanent once it has been tried for `patience_s`."""
    try:
        return await bad_tasks_are_permanent(step)
    except Exception as error:
        tried_s = (datetime.now(UTC) - activity.info().scheduled_time).total_seconds()
        if tried_s < patience_s or isinstance(error, Permanent | EpisodeSealed):
            raise
        raise Permanent(f"given up after {tried_s:.0f} s: {error}") from error


async def bad_tasks_are_permanent(step: Awaitable[R]) -> R:
    """A task or environment that can't be used will not get better by trying again."""
    try:
        return await step
    except (InvalidTask, UnknownEnvironment) as error:
        raise Permanent(str(error)) from error


async def beat() -> None:
    """Tell Temporal that the worker lives, so that a dead one's black box is taken up by another."""
    async for _ in every(HEARTBEAT_S):
        activity.heartbeat()
