"""How rows are dealt to ranks: by the tokens that will be computed, which merging decides."""

import numpy as np
import pytest

from services.trainer.domain.rows import Row
from services.trainer.ranks.shares import computed_tokens, shares


def row(episode_id: str, group_id: str, tokens: int, first: int = 0) -> Row:
    """`tokens` ids from `first` on: rows of one `first` share all that the shorter has."""
    reals = [np.zeros(tokens, np.float64) for _ in range(5)]
    ids, steps, turns = np.arange(first, first + tokens, dtype=np.int64), *[np.zeros(tokens, np.int64)] * 2
    trained = np.ones(tokens, np.bool_)
    return Row(episode_id, group_id, "tool", ids, trained, *reals[:4], steps, turns, reals[4])


ROWS = [
    *(row(f"a{number}", "a", 100) for number in range(4)),  # one prefix: 100 distinct tokens, 400 in all
    row("b", "b", 150, 1000),
    row("c", "c", 150, 2000),
]


@pytest.mark.parametrize(
    ("merged", "loads", "first"),
    [
        # Merged: 150, then 150, then the group of 100 to the first. 250 * 2 = 1.25 * 400 is just fair enough.
        (True, [250, 150], {"a0", "a1", "a2", "a3", "b"}),
        # Apart: the group's 400 against 300 is fair enough (800 <= 1.25 * 700).
        (False, [400, 300], {"a0", "a1", "a2", "a3"}),
    ],
)
def test_loads_are_what_will_be_computed(merged: bool, loads: list[int], first: set[str]) -> None:
    dealt = shares(ROWS, 2, merged=merged)
    assert [computed_tokens(share, merged) for share in dealt] == loads
    assert {one.episode_id for one in dealt[0]} == first


def test_without_merging_a_large_group_is_cut_for_balance() -> None:
    """Eight rows of one prefix are 100 tokens to compute, or 800: then one rank would have 800 of 950."""
    rows = [*(row(f"a{number}", "a", 100) for number in range(8)), row("b", "b", 150, 1000)]
    assert [len(share) for share in shares(rows, 2, merged=True)] == [1, 8]
    apart = shares(rows, 2, merged=False)
    assert sorted(computed_tokens(share, merged=False) for share in apart) == [450, 500]
