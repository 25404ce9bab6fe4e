"""Verifiers of the environments, in threads and with a deadline.

A verifier that hangs costs its thread, not the service: the thread is a daemon, gets no more work, and its place is
given to the next. It refuses a verdict that isn't a number in [0, 1].
"""

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TypeVar

from forgerl.common.v1 import task_pb2

from services.environments.interface import Environment, Task, UnknownEnvironment, Verdict
from services.reward.ports import GraderError, Message

T = TypeVar("T")
Work = Callable[[], object]
Desk = SimpleQueue[Work | None]
"""What a thread is to do, one thing after the other; None: nothing more."""


class EnvironmentVerifier:
    """See ports.Verifier."""

    def __init__(self, environments: Mapping[str, Environment], deadline_s: float, at_once: int) -> None:
        self._environments = environments
        self._deadline_s = deadline_s
        self._places = asyncio.Semaphore(at_once)
        self._known: dict[str, Environment] = {}
        self._idle: list[Desk] = []

    async def verify(self, task: task_pb2.Task, answer: str, transcript: Sequence[Message]) -> tuple[float, str]:
        """See Verifier.verify."""
        environment, given = await self._environment(task), _task(task)
        async with self._places:
            verdict = await self._within_deadline(lambda: environment.verify(given, answer, list(transcript)))
        if not (math.isfinite(verdict.score) and 0.0 <= verdict.score <= 1.0):
            raise GraderError(f"verifier of {task.environment}: score: given {verdict.score}; allowed 0..1")
        return float(verdict.score), verdict.detail

    async def tool_names(self, task: task_pb2.Task) -> frozenset[str]:
        """See Verifier.tool_names."""
        environment = await self._environment(task)
        try:
            return frozenset(tool.name for tool in environment.tools(_task(task)))
        except Exception as error:
            raise GraderError(f"tools of {task.environment}: {type(error).__name__}: {error}") from error

    async def _environment(self, task: task_pb2.Task) -> Environment:
        known = self._known.get(task.environment)
        if known is not None:
            return known
        try:
            # In a thread: an environment's first use may import for seconds.
            found = await asyncio.to_thread(self._environments.__getitem__, task.environment)
        except (KeyError, UnknownEnvironment) as error:
            raise GraderError(f"environment {task.environment!r} is not known here") from error
        self._known[task.environment] = found
        return found

    async def _within_deadline(self, work: Callable[[], Verdict]) -> Verdict:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Verdict] = loop.create_future()
        desk = self._idle.pop() if self._idle else _manned()
        desk.put(lambda: _run(work, done, loop))
        try:
            return await asyncio.wait_for(done, self._deadline_s)
        except TimeoutError:
            raise GraderError(f"verifier is still running after {self._deadline_s:g} s") from None
        finally:
            if done.cancelled():
                desk.put(None)
            else:
                self._idle.append(desk)


def _manned() -> Desk:
    desk = Desk()
    threading.Thread(target=_serve, args=(desk,), name="verifier", daemon=True).start()
    return desk


def _serve(desk: Desk) -> None:
    while (work := desk.get()) is not None:
        work()


def _run(work: Callable[[], T], done: "asyncio.Future[T]", loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = work()
    except BaseException as error:
        failure = GraderError(f"verifier raised {type(error).__name__}: {error}")
        failure.__cause__ = error
        _tell(loop, lambda: done.done() or done.set_exception(failure))
    else:
        _tell(loop, lambda: done.done() or done.set_result(result))


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)


def _task(task: task_pb2.Task) -> Task:
    split = "heldout" if task.split == task_pb2.SPLIT_HELDOUT else "train"
    return Task(task.environment, task.task_id, split, task.payload)
