"""Forests: every sample is found again, nothing is stored twice, and the plan covers each ancestor exactly once."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from services.trainer.tree.attention import tree_attention
from services.trainer.tree.forest import Forest, build_forest
from services.trainer.tree.plan import PAIRS_A_CALL, Causal, Rectangle, plan_attention


def random_samples(rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    """Samples over three token ids, so that duplicates, prefixes, single tokens and empty ones are frequent."""
    stems = [rng.integers(0, 3, rng.integers(0, 8)) for _ in range(rng.integers(1, 5))]
    picks = [stems[rng.integers(len(stems))] for _ in range(rng.integers(1, 12))]
    return [np.concatenate([p[: rng.integers(0, len(p) + 1)], rng.integers(0, 3, rng.integers(0, 7))]) for p in picks]


def ancestors(forest: Forest) -> torch.Tensor:
    """[S, S]: whether a slot sees another, by walking up."""
    mask = np.zeros((len(forest.token_ids_S),) * 2, bool)
    for slot in range(len(mask)):
        above = slot
        while above >= 0:
            mask[slot, above] = True
            above = forest.parents_S[above]
    return torch.from_numpy(mask)


def test_hand_worked_forest() -> None:
    samples = [np.array(s) for s in ([7, 8, 1], [7, 8, 2, 3], [7, 8], [9], [7, 8, 1])]
    forest = build_forest(samples)
    # 7 8 | 2 3 (the longer path first) | 1, then 9
    assert forest.token_ids_S.tolist() == [7, 8, 2, 3, 1, 9]
    assert forest.depths_S.tolist() == [0, 1, 2, 3, 2, 0]
    assert forest.parents_S.tolist() == [-1, 0, 1, 2, 1, -1]
    assert [forest.sample_slots(i).tolist() for i in range(5)] == [[0, 1, 4], [0, 1, 2, 3], [0, 1], [5], [0, 1, 4]]
    plan = plan_attention(forest, pairs_a_call=0)
    assert set(plan.causals) == {Causal((0,), 4, 4), Causal((4, 5), 1, 1)}
    assert plan.rectangles == (Rectangle(4, 5, 0, 2),)
    assert plan.scores == 10 + 2 + 2


@pytest.mark.parametrize("seed", range(200))
def test_random_forest_is_exact(seed: int) -> None:
    samples = random_samples(np.random.default_rng(seed))
    forest = build_forest(samples)
    for index, sample in enumerate(samples):
        slots = forest.sample_slots(index)
        assert forest.token_ids_S[slots].tolist() == sample.tolist()
        assert forest.parents_S[slots].tolist() == [-1, *slots.tolist()][: len(slots)]
    prefixes = {tuple(sample[:length]) for sample in samples for length in range(1, len(sample) + 1)}
    assert len(forest.token_ids_S) == len(prefixes)
    mask = ancestors(forest)
    plan = plan_attention(forest, pairs_a_call=seed % 2 * PAIRS_A_CALL)
    assert plan.scores == int(mask.sum())
    if not prefixes:
        return
    generator = torch.Generator().manual_seed(seed)
    shape = (2, len(prefixes), 8)
    query, key, value, grad = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(4))
    for tensor in (query, key, value):
        tensor.requires_grad_()
    merged = tree_attention(query, key, value, plan, 0.3)
    scores = (query @ key.transpose(-1, -2) * 0.3).masked_fill(~mask, -torch.inf)
    dense = torch.softmax(scores, dim=-1) @ value
    got = (merged, *torch.autograd.grad((merged * grad).sum(), (query, key, value)))
    wanted = (dense, *torch.autograd.grad((dense * grad).sum(), (query, key, value)))
    for left, right in zip(got, wanted, strict=True):
        assert torch.linalg.norm(left - right) <= 1e-12 * (1 + torch.linalg.norm(right))


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_forest([])
