"""Held-out tasks for one pinned policy: submitted at once, waited for, counted with a 95% interval.

Refuses to count what the failure contract excludes (infra, grader errors, cancelled) as a wrong answer.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb

from services.client.core import AsyncClient
from services.client.tasks import TaskSource

_OVER = (episodes_pb.EPISODE_STATE_SCORED, episodes_pb.EPISODE_STATE_FAILED, episodes_pb.EPISODE_STATE_CANCELLED)
# Watches kept open at a time: the episodes end in about the order in which they were submitted.
_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class DomainResult:
    """Successes among the tasks that count; `excluded` ones had no verdict."""

    solved: int
    counted: int
    excluded: int

    @property
    def rate(self) -> float:
        return self.solved / self.counted if self.counted else 0.0

    def interval(self) -> tuple[float, float]:
        """95% interval of the rate (Wilson 1927)."""
        return wilson(self.solved, self.counted)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Results by domain, of the policy of `step`."""

    step: int
    domains: dict[str, DomainResult]


def wilson(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Score interval of a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, z * z
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


class Policies:
    """The newest published step, and waiting for it."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._changed = asyncio.Condition()
        self._telling: set[asyncio.Task[None]] = set()

    def learn(self, step: int) -> None:
        if self._newest is None or step > self._newest:
            self._newest = step
            task = asyncio.ensure_future(self._tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def first(self) -> int:
        """Waits for the first policy; the newest step then."""
        return await self.later_than(-1)

    async def newest(self) -> int:
        return await self.first()

    async def later_than(self, step: int) -> int:
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest is not None and self._newest > step)
        assert self._newest is not None
        return self._newest


class Evaluation:
    """One evaluation of `tasks_per_domain` held-out tasks for policy `step`; every call may be repeated."""

    def __init__(self, client: AsyncClient, tasks: TaskSource, tasks_per_domain: int, step: int) -> None:
        self._client = client
        self.step = step
        # Domains take turns, so that an early look shows all of them.
        self._submissions = [
            tasks.evaluation(domain, index, step) for index in range(tasks_per_domain) for domain in tasks.domains()
        ]
        self._over: dict[str, episodes_pb.EpisodeView] = {}

    async def was_begun(self) -> bool:
        """Whether the gateway knows the last of its episodes."""
        last = self._submissions[-1]
        async for view in self._client.episodes(last.run_id, task_pb2.EPISODE_KIND_EVALUATION):
            if view.submission.episode_id == last.episode_id:
                return True
        return False

    async def submit(self) -> None:
        await self._client.submit(self._submissions)

    async def finish(self, on_done: Callable[[int, int], None]) -> EvaluationResult:
        """Waits for every episode; `on_done(done, total)` after each."""
        turn = asyncio.Semaphore(_AT_A_TIME)

        async def follow(submission: episodes_pb.Submission) -> None:
            async with turn:
                async for view in self._client.watch_episode(submission.episode_id):
                    if view.state in _OVER:
                        self._over[submission.episode_id] = view
                        break
                else:
                    self._over[submission.episode_id] = await self._client.episode(submission.episode_id)
            on_done(len(self._over), len(self._submissions))

        async with asyncio.TaskGroup() as group:
            for submission in self._submissions:
                group.create_task(follow(submission))
        return self.result()

    async def cancel_open(self) -> None:
        for submission in self._submissions:
            if submission.episode_id not in self._over:
                await self._client.cancel(submission.episode_id, "its policy was followed by another")

    def result(self) -> EvaluationResult:
        """Counts what is over so far."""
        return EvaluationResult(self.step, count(list(self._over.values())))


def count(views: list[episodes_pb.EpisodeView]) -> dict[str, DomainResult]:
    """Solved means a verdict of at least one half."""
    domains: dict[str, list[episodes_pb.EpisodeView]] = {}
    for view in views:
        domains.setdefault(view.submission.domain, []).append(view)
    return {domain: _count_domain(found) for domain, found in sorted(domains.items())}


def _count_domain(views: list[episodes_pb.EpisodeView]) -> DomainResult:
    scored = [view for view in views if view.HasField("score")]
    solved = sum(view.score.performance >= 0.5 for view in scored)
    return DomainResult(solved, len(scored), len(views) - len(scored))
