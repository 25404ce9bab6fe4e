"""Attention over a forest's calls and over FlexAttention's blocks equals dense attention with an ancestors mask."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from tree_cases import random_samples, relative_error

from services.trainer.tree.attention import tree_attention
from services.trainer.tree.flex import BLOCK, ancestors_only, block_kinds, block_mask, flex_tree_attention
from services.trainer.tree.forest import NO_SLOT, Forest, build_forest
from services.trainer.tree.plan import BLOCK_SLOTS, PAIRS_A_CALL, Causal, plan_attention, stacked

SCALE = 0.3


def ancestors(forest: Forest) -> NDArray[np.bool_]:
    """Walks up from every slot."""
    slots = len(forest.token_ids_S)
    seen = np.zeros((slots, slots), bool)
    for query in range(slots):
        key = query
        while key != NO_SLOT:
            seen[query, key] = True
            key = int(forest.parents_S[key])
    return seen


def dense(query: Tensor, key: Tensor, value: Tensor, seen: NDArray[np.bool_]) -> Tensor:
    repeats = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(repeats, 0), value.repeat_interleave(repeats, 0)
    scores = (query @ key.transpose(1, 2) * SCALE).masked_fill(~torch.from_numpy(seen).to(query.device), float("-inf"))
    return scores.softmax(-1) @ value


def inputs(slots: int, seed: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Four query heads as a library lays them out, slots first, over two key heads."""
    torch.manual_seed(seed)
    query = torch.randn(slots, 4, 16, dtype=dtype, device=device).transpose(0, 1)
    key, value = torch.randn(2, 2, slots, 16, dtype=dtype, device=device)
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


def forest_of(seed: int, longest: int = 24) -> Forest:
    rng = np.random.default_rng(seed)
    first = [rng.integers(0, 23, longest)]
    return build_forest(first + random_samples(rng, int(rng.integers(1, 12)), longest))


@pytest.mark.parametrize("pairs_a_call", [0, 100, PAIRS_A_CALL])
@pytest.mark.parametrize("seed", range(20))
def test_calls_equal_dense_attention(seed: int, pairs_a_call: int) -> None:
    forest = forest_of(seed, longest=24 + 10 * seed)
    given = inputs(len(forest.token_ids_S), seed, torch.float64)
    got = tree_attention(*given, plan_attention(forest, pairs_a_call), SCALE)
    wanted = dense(*given, ancestors(forest))
    out = torch.randn_like(got)
    results = (got, *torch.autograd.grad(got, given, out))
    assert relative_error(results, (wanted, *torch.autograd.grad(wanted, given, out))) <= 1e-12


def test_equal_suffixes_at_even_distances_are_stacked_without_copying() -> None:
    prefix = np.arange(10)
    forest = build_forest([np.concatenate([prefix, 20 + np.arange(3) + 3 * branch]) for branch in range(4)])
    causals = plan_attention(forest, pairs_a_call=0).causals
    # The heavy path takes the first suffix; the other three of 3 slots stand at 13, 16 and 19.
    assert set(causals) == {Causal((0,), 13, 13), Causal((13, 16, 19), 3, 3)}
    assert stacked([(0, 3), (5, 3), (9, 3)]) == (Causal((0, 5, 9), 3, None),)


def test_a_thicket_takes_one_block_and_long_branches_none() -> None:
    rng = np.random.default_rng(0)
    prefix = rng.integers(0, 9, 500)
    thicket = [np.concatenate([prefix, rng.integers(0, 3, 12)]) for _ in range(12)]
    plan = plan_attention(build_forest(thicket))
    assert len(plan.blocks) == 1
    assert 12 < plan.blocks[0].end - plan.blocks[0].start <= BLOCK_SLOTS
    assert plan.calls == 3
    long = [np.concatenate([prefix, rng.integers(0, 999, 300)]) for _ in range(4)]
    assert plan_attention(build_forest(long)).blocks == ()


@pytest.mark.parametrize("seed", range(10))
def test_flex_mask_is_the_ancestors_relation(seed: int) -> None:
    forest = forest_of(seed)
    slots = len(forest.token_ids_S)
    mask = ancestors_only(plan_attention(forest).ends_S, "cpu")
    nothing, all_slots = torch.zeros(()), torch.arange(slots)
    got = mask(nothing, nothing, all_slots[:, None], all_slots[None])
    assert np.array_equal(got.numpy(), ancestors(forest))


@pytest.mark.parametrize("seed", range(4))
def test_flex_blocks_are_those_that_hold_a_pair(seed: int) -> None:
    forest = forest_of(seed, longest=400)
    slots = len(forest.token_ids_S)
    full_QK, partial_QK = block_kinds(plan_attention(forest).ends_S)
    seen = ancestors(forest)
    edges = range(0, slots, BLOCK)
    any_QK = np.array([[seen[q : q + BLOCK, k : k + BLOCK].any() for k in edges] for q in edges])
    all_QK = np.array([[seen[q : q + BLOCK, k : k + BLOCK].all() for k in edges] for q in edges])
    assert np.array_equal(full_QK | partial_QK, any_QK)
    assert np.array_equal(full_QK, all_QK)


@pytest.mark.parametrize("seed", range(3))
def test_flex_forward_without_the_compiler(seed: int) -> None:
    forest = forest_of(seed, longest=300)
    plan = plan_attention(forest)
    given = [tensor.detach() for tensor in inputs(plan.slots, seed, torch.float64)]
    query, key, value = (tensor[None] for tensor in given)
    mask = block_mask(plan, "cpu")
    got = flex_attention(query, key, value, block_mask=mask, scale=SCALE, enable_gqa=True)
    assert isinstance(got, Tensor)
    assert relative_error([got[0]], [dense(*given, ancestors(forest))]) <= 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: FlexAttention's compiled forward and backward")
@pytest.mark.parametrize("seed", range(10))
def test_flex_equals_dense_attention_on_a_gpu(seed: int) -> None:
    forest = forest_of(seed, longest=300)
    plan = plan_attention(forest)
    given = inputs(plan.slots, seed, torch.float32, "cuda")
    got = flex_tree_attention(*given, plan, SCALE)
    wanted = dense(*given, ancestors(forest))
    out = torch.randn_like(got)
    results = (got, *torch.autograd.grad(got, given, out))
    assert relative_error(results, (wanted, *torch.autograd.grad(wanted, given, out))) <= 1e-3
