"""Two hundred random forests against an independent decoder, sample by sample: loss and every parameter's gradient."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference_decoder import Shape, reference_logits
from torch import Tensor
from tree_cases import exact_model, random_samples, relative_error

from services.trainer.tree.forest import build_forest
from services.trainer.tree.head import Targets
from services.trainer.tree.passes import PassOptions, Scores, gradient_pass

SHAPE = Shape(layers=2, heads=4, key_heads=2, head_width=8, theta=10_000.0, eps=1e-6)

Samples = list[NDArray[np.int64]]


@pytest.fixture(scope="module")
def models() -> dict[torch.dtype, Any]:
    exact = exact_model(0)
    return {torch.float64: exact, torch.float32: exact_model(0).float()}


def drawn(seed: int) -> tuple[Samples, Tensor, NDArray[np.bool_]]:
    """Samples of random depths, advantages of both signs, and a random mask that leaves first tokens out."""
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, int(rng.integers(1, 7)), int(rng.integers(1, 16)))
    firsts = np.concatenate([np.arange(len(sample)) == 0 for sample in samples])
    return samples, torch.tensor(rng.normal(size=len(firsts))), (rng.random(len(firsts)) < rng.random()) & ~firsts


def merged(model: Any, samples: Samples, advantages_N: Tensor, trained_N: NDArray[np.bool_]) -> list[Tensor]:
    forest = build_forest(samples)
    slots = forest.slots_N[trained_N]
    ones = np.ones(len(slots))
    weights = advantages_N[torch.from_numpy(trained_N)].to(next(model.parameters()).dtype)
    targets = Targets(forest.parents_S[slots], forest.token_ids_S[slots], ones, ones)

    def objective(scores: Scores, targets_N: NDArray[np.int64]) -> Tensor:
        return -(scores.logprobs_N * weights[torch.from_numpy(targets_N)]).sum()

    model.zero_grad(set_to_none=True)
    loss = gradient_pass(model, forest, targets, objective, PassOptions(10_000, local=True)).loss
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [torch.tensor(loss, dtype=torch.float64), *gradients]


def alone(model: Any, samples: Samples, advantages_N: Tensor, trained_N: NDArray[np.bool_]) -> list[Tensor]:
    leaves = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    loss, start = torch.zeros((), dtype=torch.float64), 0
    for sample in samples:
        places = np.flatnonzero(trained_N[start : start + len(sample)])
        if len(places):
            logprobs = torch.log_softmax(reference_logits(leaves, SHAPE, torch.from_numpy(sample)), -1)
            chosen = logprobs[torch.from_numpy(places - 1), torch.from_numpy(sample[places])]
            loss = loss - (chosen * advantages_N[torch.from_numpy(start + places)]).sum()
        start += len(sample)
    if not loss.requires_grad:
        return [loss, *(torch.zeros_like(leaf) for leaf in leaves.values())]
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    pairs = zip(gradients, leaves.values(), strict=True)
    return [loss.detach(), *(torch.zeros_like(leaf) if g is None else g for g, leaf in pairs)]


@pytest.mark.parametrize("seed", range(200))
def test_a_random_forest_trains_as_its_samples_do(models: dict[torch.dtype, Any], seed: int) -> None:
    case = drawn(seed)
    wanted = alone(models[torch.float64], *case)
    assert relative_error(merged(models[torch.float64], *case), wanted) <= 1e-12
    assert relative_error(merged(models[torch.float32], *case), wanted) <= 1e-5


def test_the_draws_hold_what_is_claimed_of_them() -> None:
    every = [drawn(seed)[0] for seed in range(200)]
    assert sum(any(len(sample) == 0 for sample in samples) for samples in every) >= 20
    assert sum(any(len(sample) == 1 for sample in samples) for samples in every) >= 20
    assert sum(len({sample.tobytes() for sample in samples}) < len(samples) for samples in every) >= 20
    shared = [build_forest(samples).sharing for samples in every]
    assert sum(sharing > 1.5 for sharing in shared) >= 20


def test_after_fifty_steps_of_the_optimiser_the_weights_still_agree() -> None:
    left, right = exact_model(3), exact_model(3)
    optimisers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (left, right)]
    for seed in range(50):
        case = drawn(seed)
        merged(left, *case)
        for parameter, gradient in zip(right.parameters(), alone(right, *case)[1:], strict=True):
            parameter.grad = gradient
        for parameter in left.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for optimiser in optimisers:
            optimiser.step()
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    assert all(float((a - b).detach().norm()) <= 1e-8 * float(b.detach().norm()) for a, b in pairs)
