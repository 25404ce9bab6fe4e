"""Whose gradient it is that isn't finite: the first row and token, found by halving.

A sum hides its parts, so parts of the batch are tried again. It refuses to be called for a finite gradient's sake: it
costs a few passes, and the gradients are spoilt afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from services.trainer.adapters.objective import where
from services.trainer.domain.rows import Row


def blame(rows: Sequence[Row], finite: Callable[[Sequence[Row]], bool]) -> str:
    """Episode, turn and token whose gradient isn't finite, for people; empty when each one's is.

    `finite` makes the gradient of some rows anew and says whether all of it is finite.
    """
    row = _first(rows, finite)
    if row is None:
        return ""
    places_N = np.flatnonzero(row.trained_T)
    low, high = 0, len(places_N)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if not finite([_only(row, places_N[low:middle])]) else (middle, high)
    return where(row, low)


def _first(rows: Sequence[Row], finite: Callable[[Sequence[Row]], bool]) -> Row | None:
    """The first row that spoils the gradient by itself."""
    suspects = [row for row in rows if row.trained_tokens]
    while len(suspects) > 1:
        front = suspects[: len(suspects) // 2]
        suspects = front if not finite(front) else suspects[len(front) :]
    return suspects[0] if suspects and not finite(suspects) else None


def _only(row: Row, places_N: np.ndarray) -> Row:
    """The row with some of its trained tokens as context."""
    trained_T = np.zeros_like(row.trained_T)
    trained_T[places_N] = True
    return replace(row, trained_T=trained_T, weights_T=np.where(trained_T, row.weights_T, 0.0))
