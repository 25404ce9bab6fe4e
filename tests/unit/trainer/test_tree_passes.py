"""Training on forests, whole or cut in pieces, equals training each sample by itself."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from tree_cases import Case, exact_model, random_samples, relative_error

from services.trainer.tree.passes import PassOptions, PassResult, Scores, gradient_pass

SETTINGS = [(1, False), (4, True), (9, False), (9, True), (10_000, False), (10_000, True)]
"""Token budget, and whether activations are recomputed."""


def on_forest(model: Any, case: Case, options: PassOptions) -> tuple[PassResult, list[Tensor]]:
    model.zero_grad(set_to_none=True)
    loss = case.clipped if options.local else case.by_sequence

    def objective(scores: Scores, targets_N: NDArray[np.int64]) -> Tensor:
        return loss(scores.logprobs_N, targets_N)

    result = gradient_pass(model, case.forest, case.targets, objective, options)
    return result, [p.grad if p.grad is not None else torch.zeros(()) for p in model.parameters()]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_equals_each_sample_alone(seed: int, local: bool) -> None:
    rng = np.random.default_rng(seed)
    model = exact_model(seed, tied=seed % 2 == 0)
    case = Case(random_samples(rng, 5, 9), rng)
    value, wanted = case.alone(model, case.clipped if local else case.by_sequence)
    for budget, recompute in SETTINGS:
        result, got = on_forest(model, case, PassOptions(budget, recompute, local))
        assert result.loss == pytest.approx(float(value), rel=1e-12)
        assert relative_error(got, wanted) <= 1e-12
        assert (result.pieces == 1) == (budget >= len(case.forest.token_ids_S))
