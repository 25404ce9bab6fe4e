"""Drives one run from outside: evaluation before, tasks as the scheduler wants them, evaluation after.

Everything it submits has an id that follows from domain and index, so it may be killed and started again at any time.
Refuses to decide about training: which tasks are trained, and when the run ends, is the services' matter.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace

from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.gateway.v1.episode_service_pb2 import Submission

from services.client.core import AsyncClient
from services.client.evaluation import Evaluation, EvaluationResult, Policies
from services.client.tasks import TaskSource
from services.kernel.errors import Refused, Transient

# A look without a change: the scheduler's view of what was submitted lags the gateway's by the bus.
_LOOK_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known at one moment; `phase` is waiting, evaluating, training, evaluating_after or done."""

    phase: str
    run: runs_pb.RunView
    submitted_items: int = 0
    evaluated: int = 0
    evaluations: int = 0
    before: EvaluationResult | None = None
    after: EvaluationResult | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Feed:
    """What this driver has submitted: the next index of each domain, and the newest items, oldest first."""

    next_index: Counter[str] = field(default_factory=Counter)
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=4096))
    items: int = 0


class Driver:
    """Drives `run_id` until it has ended and was evaluated. `drive` may be called once."""

    def __init__(self, client: AsyncClient, run_id: str, on_progress: Callable[[Progress], None] | None = None) -> None:
        self._client, self._run_id = client, run_id
        self._on_progress = on_progress or (lambda progress: None)
        self._changed = asyncio.Event()
        self._feed = _Feed()
        self._policies = Policies()
        self._progress: Progress

    async def drive(self) -> Progress:
        """Returns when all is over. Raises ForgeError when the stack stays away longer than the client's patience."""
        view = await self._client.run(self._run_id)
        self._progress = Progress("waiting", view)
        # In a thread: environments take seconds to import, and whoever draws a screen in this loop goes on meanwhile.
        tasks = await asyncio.to_thread(TaskSource, self._run_id, view.spec)
        watching = asyncio.ensure_future(self._watch())
        working = asyncio.ensure_future(self._work(tasks))
        try:
            await asyncio.wait([watching, working], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                # The watch ends with the run, or fails; a run's end still leaves work.
                await watching
                self._changed.set()
            return await working
        finally:
            watching.cancel()
            working.cancel()

    async def _work(self, tasks: TaskSource) -> Progress:
        spec = self._progress.run.spec
        count = spec.evaluation.tasks_per_domain
        step = await self._policies.first()
        before = None
        if count and spec.evaluation.at_start and self._progress.run.state == runs_pb.RUN_STATE_RUNNING:
            before = await self._open_evaluation(tasks, count, step)
        self._tell(phase="evaluating" if before else "training")
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(self._finish_before(before))
            await self._feed_until_ended(tasks)
            await finishing
        if count and spec.evaluation.at_end and not self._progress.run.failure:
            self._tell(phase="evaluating_after", evaluated=0, evaluations=0)
            after = await self._evaluate_after(tasks, count)
            self._tell(after=after)
        self._tell(phase="done")
        return self._progress

    async def _open_evaluation(self, tasks: TaskSource, count: int, newest_step: int) -> Evaluation | None:
        """The evaluation of policy 0: begun now, or taken up again; None when policy 0 is gone and it never began."""
        evaluation = Evaluation(self._client, tasks, count, step=0)
        if newest_step > 0 and not await evaluation.was_begun():
            self._note("no evaluation before: the run has gone on without it")
            return None
        await evaluation.submit()
        return evaluation

    async def _finish_before(self, evaluation: Evaluation | None) -> None:
        if evaluation is None:
            return
        result = await evaluation.finish(self._on_evaluated)
        phase = "training" if self._progress.phase == "evaluating" else self._progress.phase
        self._tell(before=result, phase=phase)

    async def _evaluate_after(self, tasks: TaskSource, count: int) -> EvaluationResult:
        """The newest policy's; begun anew when a step that was under way publishes one more."""
        while True:
            step = await self._policies.newest()
            evaluation = Evaluation(self._client, tasks, count, step=step)
            await evaluation.submit()
            finishing = asyncio.ensure_future(evaluation.finish(self._on_evaluated))
            overtaken = asyncio.ensure_future(self._policies.later_than(step))
            try:
                await asyncio.wait([finishing, overtaken], return_when=asyncio.FIRST_COMPLETED)
                if finishing.done():
                    return finishing.result()
            finally:
                finishing.cancel()
                overtaken.cancel()
            self._note(f"policy {step} was followed by another while it was evaluated: evaluating that one")
            await evaluation.cancel_open()

    def _on_evaluated(self, done: int, total: int) -> None:
        self._tell(evaluated=done, evaluations=total)

    # ---- feeding ----

    async def _feed_until_ended(self, tasks: TaskSource) -> None:
        async for view in self._client.episodes(self._run_id, task_pb2.EPISODE_KIND_TRAIN):
            _, domain, index, _ = view.submission.episode_id.rsplit(".", 3)
            self._feed.next_index[domain] = max(self._feed.next_index[domain], int(index) + 1)
        # The newest item of each domain may have been cut off in the middle; submitting it again completes it.
        for domain, following in list(self._feed.next_index.items()):
            await self._submit(tasks.group(domain, following - 1))
        self._feed.items = sum(self._feed.next_index.values())
        while self._progress.run.state == runs_pb.RUN_STATE_RUNNING:
            self._changed.clear()
            await self._submit_wanted(tasks)
            await self._next_change()

    async def _next_change(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _submit_wanted(self, tasks: TaskSource) -> None:
        try:
            capacity = await self._client.capacity(self._run_id)
            ledger = await self._client.ledger(self._run_id)
        except Transient as error:
            self._note(f"scheduler: {error}")
            return
        group_size = max(1, self._progress.run.spec.scheduling.group_size)
        # What was submitted but has not reached the scheduler yet is not wanted twice.
        unseen = max(0, self._feed.items - ledger.submitted // group_size)
        under_way = Counter(list(self._feed.newest)[-unseen:]) if unseen else Counter[str]()
        for domain, wanted in sorted(capacity.wanted_by_domain.items()):
            for _ in range(wanted - under_way[domain]):
                if not await self._submit(tasks.group(domain, self._feed.next_index[domain])):
                    return
                self._feed.next_index[domain] += 1
                self._feed.newest.append(domain)
                self._feed.items += 1
        self._tell(submitted_items=self._feed.items)

    async def _submit(self, group: Iterable[Submission]) -> bool:
        """Whether the run took the group. Raises Refused when it did not, though it has not ended."""
        try:
            await self._client.submit(group)
        except Refused:
            # The run may end between the scheduler's answer and the submission.
            self._tell(run=await self._client.run(self._run_id))
            if self._progress.run.state == runs_pb.RUN_STATE_RUNNING:
                raise
            return False
        return True

    # ---- what is known ----

    async def _watch(self) -> None:
        views: AsyncIterator[runs_pb.RunView] = self._client.watch_run(self._run_id, follow=True)
        async for view in views:
            if view.HasField("policy_step"):
                self._policies.learn(view.policy_step)
            self._tell(run=view)
            self._changed.set()

    def _note(self, text: str) -> None:
        self._tell(notes=(*self._progress.notes[-20:], text))

    def _tell(self, **changes: object) -> None:
        self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]
        self._on_progress(self._progress)
