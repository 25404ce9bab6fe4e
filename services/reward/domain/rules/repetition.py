"""Repetition: the share of a turn's four-token runs that occurred in it before, once it is most of them.

It works on token ids, so it knows no language, and refuses to judge short turns.
"""

from collections.abc import Sequence

import numpy as np

from services.reward.domain.turns import Turn

RUN_TOKENS = 4
SHORTEST_TOKENS = 24
TOLERATED_SHARE = 0.5
PLACES_A_TOKEN = 8
"""So many that pairs rarely share one."""


def penalty(turn: Turn) -> float:
    """-(share of repeated runs) where that is above one half; else 0."""
    ids = turn.token_ids
    if len(ids) < SHORTEST_TOKENS:
        return 0.0
    runs = len(ids) - RUN_TOKENS + 1
    # There are at least as many runs as there are pairs without the last two, and pairs are cheaper to count.
    if fewest_pairs(ids) - (RUN_TOKENS - 2) >= (1.0 - TOLERATED_SHARE) * runs:
        return 0.0
    share = 1.0 - len(set(zip(*(ids[at:] for at in range(RUN_TOKENS)), strict=False))) / runs
    return -share if share > TOLERATED_SHARE else 0.0


def fewest_pairs(ids: Sequence[int]) -> int:
    """How many pairs of neighbours are different at the least: those whose hashes are."""
    row = np.asarray(ids, np.uint64)
    bits = (PLACES_A_TOKEN * len(row)).bit_length()
    # Multiplicative hashing (Knuth, TAOCP 6.4): the upper bits of a product with odd constants, modulo 2^64.
    places = row[:-1] * np.uint64(0x9E3779B97F4A7C15) + row[1:] * np.uint64(0xC2B2AE3D27D4EB4F)
    places >>= np.uint64(64 - bits)
    seen = np.zeros(1 << bits, np.bool_)
    # So small that they are the same as signed numbers, which numpy need not convert to look them up.
    seen[places.view(np.int64)] = True
    return int(np.count_nonzero(seen))
