"""Rows as the samples of a forest: what of them is computed, which tokens are targets, and their objective.

It refuses to know weights of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.objective import TokenScores
from services.trainer.domain.rows import Row
from services.trainer.tree.forest import Forest, Ints
from services.trainer.tree.head import Targets
from services.trainer.tree.head_pass import Scores

RowLoss = Callable[[Sequence[Row], TokenScores], Tensor]
Beside = Callable[[Tensor, Forest, Ints], Tensor]
"""Detached hidden states of a forest's slots, the forest, and the slots that predict a trained token -> a loss.

A slot is named as often as it predicts one."""


def computed_ids(row: Row) -> Ints:
    """A row's tokens up to the last one that is trained: what follows has no part in the loss."""
    return row.token_ids_T[: int(np.flatnonzero(row.trained_T)[-1]) + 1]


def row_targets(rows: Sequence[Row], forest: Forest) -> Targets:
    """The trained tokens, row after row; row i is the forest's sample i."""
    slots_N = np.concatenate([forest.sample_slots(i)[np.flatnonzero(row.trained_T)] for i, row in enumerate(rows)])
    return Targets(
        forest.parents_S[slots_N],
        forest.token_ids_S[slots_N],
        np.concatenate([row.temperatures_T[row.trained_T] for row in rows]),
        np.concatenate([row.top_ps_T[row.trained_T] for row in rows]),
    )


def trained_slots(rows: Sequence[Row], forest: Forest) -> Ints:
    """The slots that predict a trained token of the rows, each as often as it does."""
    return row_targets(rows, forest).predecessors_N


class RowObjective:
    """A loss of rows as an objective over their trained tokens: asked for some, it shows the rows with only those."""

    def __init__(self, rows: Sequence[Row], loss: RowLoss) -> None:
        self._rows = rows
        self._loss = loss
        self._row_N = np.repeat(np.arange(len(rows)), [row.trained_tokens for row in rows])
        self._place_N = np.concatenate([np.flatnonzero(row.trained_T) for row in rows])

    def __call__(self, scores: Scores, targets_N: Ints) -> Tensor:
        """See tree.head_pass.Objective."""
        order_N = np.argsort(targets_N)
        index_N = torch.from_numpy(order_N).to(scores.logprobs_N.device)
        by_row = TokenScores(scores.logprobs_N[index_N], scores.entropies_N[index_N])
        return self._loss(self._only(targets_N[order_N]), by_row)

    def _only(self, targets_N: Ints) -> Sequence[Row]:
        if len(targets_N) == len(self._row_N):
            return self._rows
        rows_N, places_N = self._row_N[targets_N], self._place_N[targets_N]
        parts: list[Row] = []
        for index in np.unique(rows_N).tolist():
            trained_T = np.zeros_like(self._rows[index].trained_T)
            trained_T[places_N[rows_N == index]] = True
            parts.append(replace(self._rows[index], trained_T=trained_T))
        return parts
