"""Rows dealt out to ranks: prefix trees stay whole where that is fair, and no rank gets much more to compute.

A group's episodes share their prompt, so where prefixes are merged a group is computed once at one rank and twice at
two, and what counts is the distinct tokens; else every row's own. Any dealing gives the same gradient. It refuses to
leave a row out.
"""

from collections.abc import Sequence

from services.trainer.domain.rows import Row
from services.trainer.tree.forest import build_forest

UNFAIR = 1.25
"""A largest share above this multiple of the mean is dealt anew by episode: then trees are cut for balance."""


def shares(rows: Sequence[Row], ranks: int, *, merged: bool = True) -> list[list[Row]]:
    """One list a rank, rows in their order; some may be empty. `merged`: prefixes that rows share are computed once."""
    if ranks == 1:
        return [list(rows)]
    by_group = _dealt(rows, [row.group_id or row.episode_id for row in rows], ranks, merged)
    loads = [computed_tokens(share, merged) for share in by_group]
    if max(loads) * ranks <= UNFAIR * sum(loads):
        return by_group
    by_episode = _dealt(rows, [row.episode_id for row in rows], ranks, merged)
    return min(by_group, by_episode, key=lambda dealt: max(computed_tokens(share, merged) for share in dealt))


def computed_tokens(rows: Sequence[Row], merged: bool) -> int:
    """Tokens that are computed: distinct ones, or those of every row."""
    return distinct_tokens(rows) if merged else sum(row.length for row in rows)


def distinct_tokens(rows: Sequence[Row]) -> int:
    """Tokens that are computed when the rows' shared prefixes are computed once."""
    return len(build_forest([row.token_ids_T for row in rows]).token_ids_S) if rows else 0


def _dealt(rows: Sequence[Row], keys: Sequence[str], ranks: int, merged: bool) -> list[list[Row]]:
    """Rows of one key together: the largest first, each to whoever has least so far."""
    piles: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        piles.setdefault(key, []).append(index)
    sizes = {key: computed_tokens([rows[i] for i in pile], merged) for key, pile in piles.items()}
    loads = [0] * ranks
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for key in sorted(piles, key=lambda key: (-sizes[key], piles[key][0])):
        least = loads.index(min(loads))
        loads[least] += sizes[key]
        dealt[least] += piles[key]
    return [[rows[i] for i in sorted(pile)] for pile in dealt]
