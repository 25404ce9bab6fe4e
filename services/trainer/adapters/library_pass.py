"""Rows through a model's own attention, padded side by side: for models whose tokens can't be shared exactly.

It refuses to merge anything.
"""

# transformers' and torch's modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.row_targets import Beside, RowLoss, RowObjective, computed_ids, trained_slots
from services.trainer.domain.packing import micro_batches
from services.trainer.domain.rows import Row
from services.trainer.tree.forest import build_forest
from services.trainer.tree.head import Targets, head_rows
from services.trainer.tree.head_pass import HeadPass
from services.trainer.tree.passes import PassOptions, stand_beside
from services.trainer.tree.scoring import open_head, recomputing, whole_model


def library_pass(
    model: Any, rows: Sequence[Row], loss: RowLoss, options: PassOptions, beside: Beside | None = None
) -> None:
    """Add the loss's gradient to the model's parameters, a micro-batch of whole rows at a time."""
    for micro_batch in micro_batches(rows, options.budget_tokens):
        hidden_BTE = _one(model, micro_batch, loss, options)
        if beside is not None:
            stand_beside(_beside(micro_batch, hidden_BTE, beside))


def _one(model: Any, rows: Sequence[Row], loss: RowLoss, options: PassOptions) -> Tensor:
    ids = [torch.from_numpy(computed_ids(row)) for row in rows]
    width = max(len(row_T) for row_T in ids)
    # Padding stands on the right, where causal attention never looks, so no mask is needed.
    ids_BT = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(next(model.parameters()).device)
    with recomputing(model, options.recompute), open_head(model) as head:
        hidden_BTE: Tensor = whole_model(model).base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
        hidden_SE = hidden_BTE.flatten(0, 1)
        work = HeadPass(head, head_rows(_padded_targets(rows, width)))
        objective = RowObjective(rows, loss)
        if options.local:
            gradient_SE = work.gradient(hidden_SE.detach(), 0, objective)
        else:
            gradient_SE, _ = work.at_once(hidden_SE.detach(), objective)
        torch.autograd.backward(hidden_SE, gradient_SE)
    return hidden_BTE.detach()


def _beside(rows: Sequence[Row], hidden_BTE: Tensor, beside: Beside) -> Tensor:
    """The rows as trees of their own, without their padding; slots stand in the forest's order of trees."""
    forest = build_forest([computed_ids(row) for row in rows], merge=False)
    width = hidden_BTE.shape[1]
    places_S = np.empty(len(forest.token_ids_S), np.int64)
    for index in range(len(rows)):
        slots_T = forest.sample_slots(index)
        places_S[slots_T] = index * width + np.arange(len(slots_T))
    hidden_SE = hidden_BTE.flatten(0, 1)[torch.from_numpy(places_S).to(hidden_BTE.device)]
    return beside(hidden_SE, forest, trained_slots(rows, forest))


def _padded_targets(rows: Sequence[Row], width: int) -> Targets:
    places_N = np.concatenate([np.flatnonzero(row.trained_T) + index * width for index, row in enumerate(rows)])
    return Targets(
        places_N - 1,
        np.concatenate([row.token_ids_T[row.trained_T] for row in rows]),
        np.concatenate([row.temperatures_T[row.trained_T] for row in rows]),
        np.concatenate([row.top_ps_T[row.trained_T] for row in rows]),
    )
