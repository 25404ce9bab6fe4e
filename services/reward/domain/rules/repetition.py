"""Repetition: the share of a turn's four-token runs that occurred in it before, once it is most of them.

It works on token ids, so it knows no language, and refuses to judge short turns.
"""

from services.reward.domain.turns import Turn

RUN_TOKENS = 4
SHORTEST_TOKENS = 24
TOLERATED_SHARE = 0.5


def penalty(turn: Turn) -> float:
    """-(share of repeated runs) where that is above one half; else 0."""
    ids = turn.token_ids
    if len(ids) < SHORTEST_TOKENS:
        return 0.0
    runs = [ids[start : start + RUN_TOKENS] for start in range(len(ids) - RUN_TOKENS + 1)]
    share = 1.0 - len(set(runs)) / len(runs)
    return -share if share > TOLERATED_SHARE else 0.0
