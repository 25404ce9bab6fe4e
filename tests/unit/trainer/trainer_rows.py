"""Rows made by hand: everything neutral but what a test names."""

from collections.abc import Sequence

import numpy as np

from services.trainer.domain.rows import Row


def row(episode_id: str, trained: Sequence[int], *, domain: str = "tool", policy_step: int = 0, turn: int = 0) -> Row:
    """`trained`: 0 or 1 a token. The engine's probability of each is 1/2, the advantage 1, the weight 1."""
    trained_T = np.asarray(trained, bool)
    return Row(
        episode_id,
        "0",
        domain,
        np.arange(len(trained_T)),
        trained_T,
        trained_T.astype(np.float64),
        np.where(trained_T, np.log(0.5), 0.0),
        np.ones(len(trained_T)),
        np.ones(len(trained_T)),
        np.where(trained_T, policy_step, -1),
        np.where(trained_T, turn, -1),
        trained_T.astype(np.float64),
    )
