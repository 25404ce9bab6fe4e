"""The trainer as several processes: ranks that it starts itself, one that is killed, and steps that go on as by one."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import torch
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted
from test_trainer_steps import take_batch
from trainer_bench import Bench

from services.kernel.errors import ForgeError, InvalidInput
from services.trainer.bootstrap import leader
from services.trainer.ports import Learner
from services.trainer.ranks.daemon_thread import DaemonThread
from services.trainer.ranks.place import Place, place_of
from services.trainer.settings import Settings

DEADLINE_S = 120.0


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "services.trainer" in child.cmdline()]


@asynccontextmanager
async def ranks(bench: Bench | None, root: Path) -> AsyncIterator[tuple[Bench, "asyncio.Task[None]"]]:
    """A trainer of two processes on `root`; another one when `bench` is given, which was there before."""
    threads: Executor = DaemonThread("torch")
    learner, (followers,) = leader(Settings(), place_of({}, 2), threads)
    task = asyncio.create_task(followers.run())

    def made() -> tuple[Learner, Executor]:
        return learner, threads

    if bench is None:
        bench = Bench(root, make_learner=made)
    else:
        bench.make_learner = made
        bench.restart()
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield bench, task
    finally:
        task.cancel()
        await asyncio.wait([task])
        # As the process's end would: the next one meets anew.
        await asyncio.get_running_loop().run_in_executor(threads, torch.distributed.destroy_process_group)


@pytest.mark.timeout(240)
async def test_a_lost_rank_ends_the_group_and_the_next_one_goes_on(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("FORGERL_TOKEN", "FORGERL_SECRET"):
        monkeypatch.setenv(name, "0" * 32)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    roots = [tmp_path / name for name in ("one", "two")]
    for root in roots:
        root.mkdir()
    one = Bench(roots[0])
    await one.create(model_folder)
    for number in (1, 2):
        await one.feed(await take_batch(one, number))

    async with ranks(None, roots[1]) as (two, task):
        await two.create(model_folder)
        await two.feed(await take_batch(two, 1))
        (child,) = children()
        child.kill()
        with pytest.raises(ForgeError, match=r"rank 1 \(process \d+\) ended with -9"):
            await task
    async with ranks(two, roots[1]) as (two, task):
        messages = await two.feed(await take_batch(two, 2))
        assert not task.done()
    assert not children()

    assert [m.step for m in messages if isinstance(m, StepCompleted)] == [1, 2]
    ends = [[m for m in await b.published() if isinstance(m, PolicyPublished)] for b in (one, two)]
    assert ends[0][0].digest == ends[1][0].digest
    theirs = one.policy_model(ends[0][-1]).state_dict()
    for name, weight in two.policy_model(ends[1][-1]).state_dict().items():
        assert torch.allclose(weight, theirs[name], atol=1e-6), name


def test_a_place_is_torchruns_or_alone():
    assert place_of({}, 1) == Place(0, 1, "127.0.0.1", 0, launched=False)
    assert place_of({}, 3).size == 3
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}
    assert place_of(told, 1) == Place(1, 2, "node-0", 29500, launched=True)
    assert place_of(place_of(told, 2).variables(0), 2) == Place(0, 2, "node-0", 29500, launched=True)
    with pytest.raises(InvalidInput, match=r"FORGERL_TRAINER_PROCESSES: given 3; allowed 1, or the 2 that torchrun"):
        place_of(told, 3)
    with pytest.raises(InvalidInput, match=r"MASTER_PORT: given 'nothing'"):
        place_of({**told, "MASTER_PORT": ""}, 1)
