"""Tiles: which they are, that they are taken where they are cheaper, and attention and training over them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_tree_attention import SCALE, ancestors, dense, forest_of, inputs
from torch import Tensor
from tree_cases import Case, exact_model, random_samples, relative_error

from services.trainer.tree import plan as planning
from services.trainer.tree import tile_attention, tiles
from services.trainer.tree.attention import tree_attention
from services.trainer.tree.forest import Forest, build_forest
from services.trainer.tree.partition import partition, piece_forest
from services.trainer.tree.passes import PassOptions, Scores, gradient_pass
from services.trainer.tree.path_attention import PathStore, PieceAttention
from services.trainer.tree.plan import AttentionPlan, plan_attention
from services.trainer.tree.scoring import WholeForest
from services.trainer.tree.tiles import Group, gathered, tile_groups, tiles_of


@pytest.fixture(params=[2, 5, 24])
def tile_slots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Small tiles, so that small forests take several, and several groups of them."""
    for module in (tiles, tile_attention):
        monkeypatch.setattr(module, "TILE_SLOTS", request.param)
    monkeypatch.setattr(tiles, "SPREAD_PAIRS", 8 * request.param)
    return request.param


def tiled(forest: Forest) -> AttentionPlan:
    """A plan in tiles whatever they cost."""
    plan = plan_attention(forest, pairs_a_call=0)
    groups = tile_groups(forest.depths_S)
    return replace(plan, causals=(), rectangles=(), blocks=(), tiles=tiles_of(forest, plan.ends_S, groups))


def test_groups_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of two over a path of six, and one of three that leaves it behind its second token."""
    monkeypatch.setattr(tiles, "TILE_SLOTS", 2)
    monkeypatch.setattr(tiles, "SPREAD_PAIRS", 4)
    forest = build_forest([np.arange(6), np.array([0, 1, 9, 8, 7])])
    # First slots 0, 2, 4, 6, 8 stand at depths 0, 2, 4, 2, 4, so tiles see 2, 4, 6, 4 and 6 keys.
    groups = tile_groups(forest.depths_S)
    assert groups == (Group((2, 4, 8), 5, 6), Group((0, 6), 4, 4))
    assert [group.pairs for group in groups] == [36, 16]
    taken = tiles_of(forest, plan_attention(forest).ends_S, groups)
    slots, keys, hidden = gathered(taken, groups[0])
    assert slots.tolist() == [[2, 3], [4, 5], [8, 8]]
    # A tile's own slots stand first, then the path of its first slot; the last tile has one slot only.
    assert keys.tolist() == [[2, 3, 0, 1, 0, 0], [4, 5, 0, 1, 2, 3], [8, 8, 0, 1, 6, 7]]
    assert (~hidden).astype(int).tolist() == [
        [[1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]],
        [[1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
        [[1, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]],
    ]


@pytest.mark.parametrize("seed", range(12))
def test_tiles_equal_dense_attention(tile_slots: int, seed: int) -> None:
    forest = forest_of(seed, longest=10 + 9 * seed)
    given = inputs(len(forest.token_ids_S), seed, torch.float64)
    plan = tiled(forest)
    assert plan.tiles and sum(group.slots for group in plan.tiles.groups) == plan.slots
    got, wanted = tree_attention(*given, plan, SCALE), dense(*given, ancestors(forest))
    out = torch.randn_like(got)
    results = (got, *torch.autograd.grad(got, given, out))
    assert relative_error(results, (wanted, *torch.autograd.grad(wanted, given, out))) <= 1e-12


def test_roots_have_no_gradient_of_scores_not_even_rounding() -> None:
    forest = build_forest([np.array([first]) for first in range(5)])
    given = inputs(5, 0, torch.float32)
    of_query, of_key, _ = torch.autograd.grad(tree_attention(*given, tiled(forest), SCALE).sum(), given)
    assert not of_query.any() and not of_key.any()


def test_narrow_numbers_are_widened_on_the_way() -> None:
    forest = forest_of(3, longest=90)
    given = [tensor.detach().bfloat16() for tensor in inputs(len(forest.token_ids_S), 3, torch.float32)]
    got = tree_attention(given[0], given[1], given[2], tiled(forest), SCALE)
    query, key, value = (tensor.float() for tensor in given)
    assert got.dtype is torch.bfloat16
    assert relative_error([got.float()], [dense(query, key, value, ancestors(forest))]) <= 3e-3


@pytest.mark.parametrize("budget", [3, 9, 40])
@pytest.mark.parametrize("seed", range(6))
def test_tiles_of_pieces_see_the_path_above(tile_slots: int, seed: int, budget: int) -> None:
    forest = forest_of(seed, longest=40)
    given = inputs(len(forest.token_ids_S), seed, torch.float64)
    store = PathStore(int(forest.depths_S.max()) + 1)
    outputs: list[Tensor] = []
    leaves: list[tuple[Tensor, ...]] = []
    pieces = partition(forest, budget)
    for piece in pieces:
        own = piece_forest(forest, piece)
        leaves.append(tuple(t[:, piece.start : piece.end].detach().requires_grad_() for t in given))
        outputs.append(PieceAttention(piece, tiled(own), store).attend(0, leaves[-1], SCALE))  # pyright: ignore
    wanted = dense(*given, ancestors(forest))
    assert relative_error([torch.cat(outputs, 1)], [wanted]) <= 1e-12


@pytest.mark.parametrize("budget, recompute", [(6, True), (25, False), (10_000, False)])
@pytest.mark.parametrize("seed", range(3))
def test_training_in_tiles_equals_training_by_calls(
    monkeypatch: pytest.MonkeyPatch, seed: int, budget: int, recompute: bool
) -> None:
    """Two ways of one pass, whole and in pieces; test_tree_passes.py holds the second against each sample alone."""
    rng = np.random.default_rng(seed)
    model, case = exact_model(seed), Case(random_samples(rng, 10, 30), rng)

    def objective(scores: Scores, targets_N: NDArray[np.int64]) -> Tensor:
        return case.clipped(scores.logprobs_N, targets_N)

    def gradients(pair: float) -> list[Tensor]:
        monkeypatch.setattr(planning, "TILE_PAIR", pair)
        assert (plan_attention(case.forest).tiles is None) == (pair > 0)
        model.zero_grad(set_to_none=True)
        options = PassOptions(budget, recompute=recompute, local=True)
        result = gradient_pass(model, case.forest, case.targets, objective, options)
        return [torch.tensor(result.loss), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    assert relative_error(gradients(-1e9), gradients(1e9)) <= 1e-12


def test_small_trees_are_tiled_and_a_path_alone_or_long_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    trunk = rng.integers(0, 9, 20)
    bushes = [np.concatenate([trunk, [tree], rng.integers(0, 3, 40)]) for tree in range(12) for _ in range(6)]
    bushy = plan_attention(build_forest(bushes))
    assert bushy.tiles is not None and bushy.calls == 2 * 4 and not bushy.causals and not bushy.blocks
    assert plan_attention(build_forest(bushes), pairs_a_call=0).tiles is None
    alone = build_forest([rng.integers(0, 700, 73)])
    assert plan_attention(alone).tiles is None
    longer = [np.concatenate([rng.integers(0, 9, 400), bush]) for bush in bushes]
    assert plan_attention(build_forest(longer)).tiles is None


def test_layers_of_one_model_share_what_is_gathered() -> None:
    forest = forest_of(1, longest=60)
    plan = tiled(forest)
    assert plan.tiles is not None
    attention, given = WholeForest(plan), inputs(plan.slots, 1, torch.float64)
    first = attention.attend(0, given, SCALE)
    known = plan.tiles.gathers[torch.float64]
    assert torch.equal(attention.attend(1, given, SCALE), first)
    assert plan.tiles.gathers[torch.float64] is known
