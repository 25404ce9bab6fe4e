"""How a forest is cut: by hand for small ones, and what must hold of any."""

import numpy as np
import pytest
from tree_cases import random_samples

from services.trainer.tree.forest import NO_SLOT, Forest, build_forest
from services.trainer.tree.partition import SPINE_TOKENS, Piece, partition, piece_forest


def shape(pieces: tuple[Piece, ...]) -> list[tuple[int, int, int, bool]]:
    return [(piece.start, piece.end, piece.release, piece.spine) for piece in pieces]


def test_what_fits_is_one_piece() -> None:
    forest = build_forest([np.array([1, 2, 3]), np.array([1, 2, 4]), np.array([5])])
    assert shape(partition(forest, 5)) == [(0, 5, 0, False)]


def test_a_path_is_cut_and_a_subtree_is_not() -> None:
    """Slots 0..5 are the long path; 6, 7 hang below its first two tokens; 8 is a tree of its own."""
    forest = build_forest([np.arange(6), np.array([0, 1, 9, 9]), np.array([7])])
    pieces = partition(forest, 3)
    assert shape(pieces) == [(0, 3, 0, True), (3, 6, 0, True), (6, 9, 1, False)]
    # The bundle sees depths below 2 from its first two slots, and nothing from its third.
    assert [(hang.start, hang.end, hang.depth) for hang in pieces[2].hangs] == [(0, 2, 2), (2, 3, 0)]


def test_a_path_is_cut_where_a_subtree_hangs_that_is_cut_too() -> None:
    """Below the first token hang a path of four more and one of three: with pieces of two, both are cut."""
    forest = build_forest([np.array([0, 1, 2, 3, 4]), np.array([0, 9, 8, 7])])
    assert shape(partition(forest, 2)) == [
        (0, 1, 0, True),
        (1, 3, 0, True),
        (3, 5, 0, True),
        (5, 7, 2, True),
        (7, 8, 0, True),
    ]


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="budget_tokens: given 0"):
        partition(build_forest([np.array([1])]), 0)


def ancestors(forest: Forest, slot: int) -> set[int]:
    found: set[int] = set()
    while slot != NO_SLOT:
        found.add(slot)
        slot = int(forest.parents_S[slot])
    return found


@pytest.mark.parametrize("budget", [1, 2, 5, 16, 40])
@pytest.mark.parametrize("seed", range(4))
def test_every_slot_sees_exactly_its_ancestors(seed: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    forest = build_forest(random_samples(rng, 12, 25))
    longest = int(forest.depths_S.max()) + 1
    kept: list[Piece] = []
    reached = 0
    for piece in partition(forest, budget):
        assert piece.start == reached and piece.slots <= budget
        reached = piece.end
        kept = kept[: len(kept) - piece.release]
        path = [slot for above in kept for slot in range(above.start, above.end)]
        own = piece_forest(forest, piece)
        for hang in piece.hangs:
            for slot in range(hang.start, hang.end):
                below = {piece.start + parent for parent in ancestors(own, slot)}
                seen = below | set(path[: hang.depth])
                assert seen == ancestors(forest, piece.start + slot)
        cap = min(budget, SPINE_TOKENS)
        assert sum(above.slots for above in kept) + piece.slots <= max(budget, longest) + 2 * cap
        if piece.spine:
            assert piece.depth == len(path)
            kept.append(piece)
    assert reached == len(forest.token_ids_S)


def test_kept_pieces_follow_the_longest_path_and_not_the_tree() -> None:
    """100 paths of 2,000 hang along one of 40,000: of 240,000 slots at most a tenth more than the path is kept."""
    rng = np.random.default_rng(0)
    trunk = rng.integers(0, 50, 40_000)
    samples = [trunk]
    samples += [np.concatenate([trunk[:depth], [99], rng.integers(0, 50, 1_999)]) for depth in range(0, 38_000, 380)]
    forest = build_forest(samples)
    assert len(forest.token_ids_S) == 240_000
    live, kept = 0, list[int]()
    for piece in partition(forest, 4_096):
        kept = kept[: len(kept) - piece.release]
        live = max(live, sum(kept) + piece.slots)
        if piece.spine:
            kept.append(piece.slots)
    assert live <= 44_000
