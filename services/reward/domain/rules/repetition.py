"""Repetition: the share of a turn's four-token runs that occurred in it before, once it is most of them.

It works on token ids, so it knows no language, and refuses to judge short turns.
"""

from collections.abc import Sequence

import numpy as np

from services.reward.domain.turns import Turn

RUN_TOKENS = 4
SHORTEST_TOKENS = 24
TOLERATED_SHARE = 0.5


def penalty(turn: Turn) -> float:
    """-(share of repeated runs) where that is above one half; else 0."""
    ids = turn.token_ids
    if len(ids) < SHORTEST_TOKENS:
        return 0.0
    runs = len(ids) - RUN_TOKENS + 1
    # There are at least as many runs as there are pairs without the last two, and pairs are cheaper to count.
    if _distinct_pairs(ids) - (RUN_TOKENS - 2) >= (1.0 - TOLERATED_SHARE) * runs:
        return 0.0
    share = 1.0 - len(set(zip(*(ids[at:] for at in range(RUN_TOKENS)), strict=False))) / runs
    return -share if share > TOLERATED_SHARE else 0.0


def _distinct_pairs(ids: Sequence[int]) -> int:
    row = np.fromiter(ids, np.uint64, len(ids))
    pairs = np.sort((row[:-1] << np.uint64(32)) | row[1:])
    return 1 + int(np.count_nonzero(pairs[1:] != pairs[:-1]))
