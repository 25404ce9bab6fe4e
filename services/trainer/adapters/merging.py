"""Decides, half batch by half batch, whether rows are merged, and keeps the books of it.

It lasts as long as its learner, since it measures this machine's pace once. What was not merged is logged with the
reason. It refuses to train.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.kernel.logs import get_logger
from services.trainer.adapters.pace import Gauge
from services.trainer.adapters.row_targets import computed_ids
from services.trainer.domain.merging import Merging
from services.trainer.domain.rows import Row
from services.trainer.ports import Recipe
from services.trainer.tree.choice import NO_PACE, Choice, Way, choose, unmerged
from services.trainer.tree.cost import ModelCost, model_cost
from services.trainer.tree.scoring import whole_model

SWITCHED_OFF = "merge_prefixes is off"


class Merger:
    """See the module."""

    def __init__(self) -> None:
        self._gauge = Gauge()

    def choose(self, model: Any, rows: Sequence[Row], recipe: Recipe) -> tuple[Choice, Merging]:
        """How to compute rows that all have trained tokens, and what is expected of it; gradients are there none."""
        config = whole_model(model).config
        samples = [computed_ids(row) for row in rows]
        cost = _cost(config)
        pace = NO_PACE if cost is None else self._gauge.pace(model, rows, cost, recipe.micro_batch_tokens)
        trained = [np.flatnonzero(row.trained_T) for row in rows]
        if recipe.merge_prefixes:
            choice = choose(samples, trained, config, cost, pace)
        else:
            choice = unmerged(samples, Way.LIBRARY, SWITCHED_OFF, cost, trained)
        if choice.reason:
            get_logger().info("merging.fell_back", reason=choice.reason, rows=len(rows))
        expected = Merging(
            branch_tokens=sum(len(sample) for sample in samples),
            computed_tokens=len(choice.forest.token_ids_S),
            branch_operations=choice.apart.operations,
            computed_operations=choice.computed.operations,
            branch_s=choice.apart.operations * pace.operation_s,
            reasons=(choice.reason,) if choice.reason else (),
        )
        return choice, expected


def _cost(config: Any) -> ModelCost | None:
    """None where the model isn't such a decoder: it isn't merged then, and nothing is predicted."""
    try:
        return model_cost(config)
    except AttributeError:
        return None
