"""The driver against a scripted stack: what it submits, in which order, and what a second driver adds."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb

from services.client.driver import Driver
from services.client.tasks import TaskSource
from services.kernel.errors import Refused, Transient

RUN = "run-1"


class ScriptedStack:
    """Stands for all services: takes episodes, wants `queue` items, ends the run after `end_items`."""

    def __init__(self, end_items: int, tasks: int, queue: int = 3) -> None:
        spec = run_pb2.RunSpec()
        spec.domains.add(name="tool")
        spec.scheduling.group_size = 2
        spec.evaluation.tasks_per_domain, spec.evaluation.at_start, spec.evaluation.at_end = tasks, True, True
        self.view = runs_pb.RunView(run_id=RUN, spec=spec, state=runs_pb.RUN_STATE_RUNNING, policy_step=0)
        self.known: dict[str, episodes_pb.Submission] = {}
        self.order: list[str] = []
        self.end_items, self.queue, self.trained = end_items, queue, 0
        self.lag_items = 0
        self.away = 0
        self._views: asyncio.Queue[runs_pb.RunView] = asyncio.Queue()

    async def run(self, run_id: str) -> runs_pb.RunView:
        return self.view

    async def watch_run(self, run_id: str, *, follow: bool = False):
        yield self.view
        while True:
            yield await self._views.get()

    async def submit(self, given) -> list[Any]:
        submissions = list(given)
        if self.view.state == runs_pb.RUN_STATE_ENDED and submissions[0].kind == task_pb2.EPISODE_KIND_TRAIN:
            raise Refused(f"run {RUN}: given one that has ended; allowed a running one")
        for submission in submissions:
            if submission.episode_id not in self.known:
                self.order.append(submission.episode_id)
            self.known[submission.episode_id] = submission
        return []

    def _train_ids(self) -> list[str]:
        return [name for name, found in self.known.items() if found.kind == task_pb2.EPISODE_KIND_TRAIN]

    async def capacity(self, run_id: str) -> scheduler_pb.Capacity:
        if self.away:
            self.away -= 1
            raise Transient("the scheduler is away")
        seen = max(0, len(self._train_ids()) // 2 - self.lag_items)
        self.trained = min(self.trained + 1, seen)
        if self.trained >= self.end_items:
            self.end()
        return scheduler_pb.Capacity(wanted_by_domain={"tool": max(0, self.queue - (seen - self.trained))})

    async def ledger(self, run_id: str) -> scheduler_pb.RunLedger:
        seen = max(0, len(self._train_ids()) // 2 - self.lag_items)
        return scheduler_pb.RunLedger(submitted=2 * seen)

    def end(self, step: int = 4) -> None:
        self.view = runs_pb.RunView()
        self.view.MergeFrom(runs_pb.RunView(run_id=RUN, state=runs_pb.RUN_STATE_ENDED, policy_step=step))
        self._views.put_nowait(self.view)

    async def episodes(self, run_id: str, kind=task_pb2.EPISODE_KIND_UNSPECIFIED):
        for submission in list(self.known.values()):
            if kind in (task_pb2.EPISODE_KIND_UNSPECIFIED, submission.kind):
                yield episodes_pb.EpisodeView(submission=submission)

    async def watch_episode(self, episode_id: str):
        view = episodes_pb.EpisodeView(submission=self.known[episode_id], state=episodes_pb.EPISODE_STATE_SCORED)
        view.score.performance = float(episode_id.endswith("0"))
        yield view

    async def cancel(self, episode_id: str, reason: str = "") -> None:
        self.known.pop(episode_id, None)


@pytest.fixture
def spec_kept(monkeypatch):
    """The ended view keeps the spec, as the gateway's does."""
    original = ScriptedStack.end

    def end(self, step: int = 4) -> None:
        spec = self.view.spec
        original(self, step)
        self.view.spec.CopyFrom(spec)

    monkeypatch.setattr(ScriptedStack, "end", end)


async def drive(stack: ScriptedStack):
    async with asyncio.timeout(20):
        return await Driver(stack, RUN).drive()  # type: ignore[arg-type]


async def test_evaluates_feeds_and_evaluates_again(spec_kept):
    stack = ScriptedStack(end_items=3, tasks=10)
    progress = await drive(stack)
    assert progress.phase == "done"
    assert stack.order[:10] == [f"{RUN}.eval0.tool.{index}" for index in range(10)]
    trained = [name for name in stack.order if ".eval" not in name]
    assert trained[:4] == [f"{RUN}.tool.0.0", f"{RUN}.tool.0.1", f"{RUN}.tool.1.0", f"{RUN}.tool.1.1"]
    assert stack.known[f"{RUN}.tool.0.0"].group_id == f"{RUN}/tool/0"
    assert stack.known[f"{RUN}.eval4.tool.9"].pinned_step == 4
    # Index 0 of ten is solved, by the script.
    assert progress.before and progress.before.domains["tool"].rate == pytest.approx(0.1)
    assert progress.after and progress.after.step == 4


async def test_what_the_scheduler_has_not_seen_yet_is_not_submitted_twice(spec_kept):
    stack = ScriptedStack(end_items=4, tasks=0)
    stack.lag_items = 2
    await drive(stack)
    items = Counter(name.rsplit(".", 1)[0] for name in stack.order)
    # At most the queue, the consumed items and those on their way.
    assert len(items) <= 3 + 4 + 2 and set(items.values()) == {2}


async def test_a_second_driver_goes_on_where_the_first_was_cut_off(spec_kept):
    stack = ScriptedStack(end_items=99, tasks=0)
    stack.end_items = 2
    await stack.submit(
        [
            episodes_pb.Submission(episode_id=f"{RUN}.tool.{index}.{member}", kind=task_pb2.EPISODE_KIND_TRAIN)
            for index, members in ((0, (0, 1)), (1, (0,)))
            for member in members
        ]
    )
    await drive(stack)
    assert stack.order[3:6] == [f"{RUN}.tool.1.1", f"{RUN}.tool.2.0", f"{RUN}.tool.2.1"]


async def test_a_scheduler_that_is_away_is_waited_for(spec_kept):
    stack = ScriptedStack(end_items=1, tasks=0)
    stack.away = 1
    progress = await drive(stack)
    assert progress.notes == ("scheduler: the scheduler is away",)
    assert progress.phase == "done" and stack.trained == 1


async def test_no_evaluation_before_once_training_has_gone_on(spec_kept):
    stack = ScriptedStack(end_items=1, tasks=2)
    stack.view.policy_step = 3
    progress = await drive(stack)
    assert progress.before is None and progress.after is not None
    assert not [name for name in stack.order if ".eval0." in name]


async def test_a_run_that_ends_just_before_a_submission_is_an_ordinary_end(spec_kept):
    stack = ScriptedStack(end_items=99, tasks=2)
    submit = stack.submit

    async def submit_late(given) -> list[Any]:
        submissions = list(given)
        if submissions[0].episode_id == f"{RUN}.tool.2.0":
            stack.end()
        return await submit(submissions)

    stack.submit = submit_late
    progress = await drive(stack)
    assert progress.phase == "done" and progress.after is not None
    assert f"{RUN}.tool.2.0" not in stack.known


async def test_environments_are_imported_off_the_loop(spec_kept, monkeypatch):
    """They take seconds, in which a screen must still be drawn and other calls answered."""
    threads: list[threading.Thread] = []

    def made(*arguments: Any) -> TaskSource:
        threads.append(threading.current_thread())
        return TaskSource(*arguments)

    monkeypatch.setattr("services.client.driver.TaskSource", made)
    await drive(ScriptedStack(end_items=1, tasks=1))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
