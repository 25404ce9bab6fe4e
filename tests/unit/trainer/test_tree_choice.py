"""Merged or apart: the same pace makes the same choice, and another pace may make another."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tree_cases import exact_model, random_samples

from services.trainer.domain.merging import FREE_CALLS, Pace
from services.trainer.tree.choice import Way, apart_work, choose, work_of
from services.trainer.tree.cost import model_cost
from services.trainer.tree.forest import build_forest

Samples = list[NDArray[np.int64]]


def places(samples: Samples) -> Samples:
    return [np.arange(1, len(sample), dtype=np.int64) for sample in samples]


@pytest.mark.parametrize("longest", [12, 700])
@pytest.mark.parametrize("seed", range(5))
def test_what_branches_cost_is_what_laying_them_end_to_end_costs(seed: int, longest: int) -> None:
    samples = random_samples(np.random.default_rng(seed), 9, longest)
    cost = model_cost(exact_model().config)
    forest = build_forest(samples, merge=False)
    assert apart_work(samples, places(samples), cost) == work_of(forest, places(samples), cost)


def test_a_little_gain_that_costs_calls_is_taken_where_calls_are_cheap() -> None:
    rng = np.random.default_rng(0)
    head = rng.integers(0, 20, 20)
    samples = [np.concatenate([head, [20 + k % 3], rng.integers(0, 20, 400)]) for k in range(3)]
    config = exact_model().config
    ways = [
        choose(samples, places(samples), config, model_cost(config), pace).way
        for pace in (FREE_CALLS, Pace(1e-12, 1.0), Pace(1e-12, 1.0), FREE_CALLS)
    ]
    assert ways == [Way.MERGED, Way.APART, Way.APART, Way.MERGED]


def test_samples_that_share_nothing_are_laid_out_once() -> None:
    samples = [np.array([first, 5, 5]) for first in range(4)]
    config = exact_model().config
    choice = choose(samples, places(samples), config, model_cost(config), FREE_CALLS)
    assert (choice.way, choice.reason, len(choice.forest.token_ids_S)) == (Way.APART, "nothing is shared", 12)
    assert choice.computed == work_of(build_forest(samples, merge=False), places(samples), model_cost(config))
