"""Processes that train together, and what each of them answers."""

import multiprocessing
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from services.trainer.ranks.group import Group
from services.trainer.ranks.place import LOOPBACK, Place, free_port

DEADLINE_S = 180.0


def run_ranks(size: int, work: Callable[[Group, Path], Any], folder: Path) -> list[Any]:
    """`work` at every rank, at the same time; what each rank returned. No rank outlives the call."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    # Forked from a server that has imported torch once; the test's own process has threads that can't be forked.
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(["rank_processes", "services.trainer.adapters.torch_learner", "test_trainer_gradient"])
    places = [Place(rank, size, LOOPBACK, port, launched=True) for rank in range(size)]
    children = [fork.Process(target=_rank, args=(place, work, folder), daemon=True) for place in places]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(DEADLINE_S)
    finally:
        for child in children:
            if child.is_alive():
                child.kill()
                child.join()
    errors = [(folder / f"{rank}.error").read_text() for rank in range(size) if (folder / f"{rank}.error").exists()]
    assert not errors, "\n".join(errors)
    assert [child.exitcode for child in children] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _rank(place: Place, work: Callable[[Group, Path], Any], folder: Path) -> None:
    torch.set_num_threads(1)
    group = Group(place)
    try:
        group.connect(DEADLINE_S)
        torch.save(work(group, folder), folder / f"{place.rank}.pt")
        group.leave()
    except BaseException:
        (folder / f"{place.rank}.error").write_text(f"rank {place.rank}: {traceback.format_exc()}")
        raise
