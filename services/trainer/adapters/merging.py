"""Decides, half batch by half batch, whether rows are merged, and says what is expected of it.

What could not be merged, or would not gain, is logged with the reason. It refuses to train, and to measure.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.kernel.logs import get_logger
from services.trainer.adapters.row_targets import computed_ids
from services.trainer.domain.merging import Merging
from services.trainer.domain.rows import Row
from services.trainer.ports import Recipe
from services.trainer.tree.choice import Choice, Way, choose, unmerged
from services.trainer.tree.cost import ModelCost, model_cost
from services.trainer.tree.scoring import whole_model


def choose_way(model: Any, rows: Sequence[Row], recipe: Recipe) -> tuple[Choice, Merging]:
    """How to compute rows that all have trained tokens, and what is expected of it.

    Without `merge_prefixes` nothing falls back: it is what was asked for.
    """
    config = whole_model(model).config
    samples = [computed_ids(row) for row in rows]
    trained = [np.flatnonzero(row.trained_T) for row in rows]
    cost = cost_of(config)
    if recipe.merge_prefixes:
        choice = choose(samples, trained, config, cost, recipe.pace)
    else:
        choice = unmerged(samples, Way.LIBRARY, "", cost, trained)
    if choice.reason:
        get_logger().info("merging.fell_back", reason=choice.reason, rows=len(rows))
    expected = Merging(
        branch_tokens=sum(len(sample) for sample in samples),
        computed_tokens=len(choice.forest.token_ids_S),
        branch_operations=choice.apart.operations,
        computed_operations=choice.computed.operations,
        branch_s=choice.apart.operations * recipe.pace.operation_s,
        reasons=(choice.reason,) if choice.reason else (),
    )
    return choice, expected


def cost_of(config: Any) -> ModelCost | None:
    """None where the model isn't a decoder whose cost is known: it isn't merged then, and nothing is predicted."""
    try:
        return model_cost(config)
    except AttributeError:
        return None
