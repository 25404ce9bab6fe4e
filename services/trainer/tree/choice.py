"""Whether samples are trained on one forest or branch by branch, and what either costs.

Merging is taken where it is exact and predicted to be faster: operations at a given pace, and a price for every
attention call, since many short calls can eat a small gain. It refuses to measure: the same pace, the same choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from services.trainer.domain.merging import Pace
from services.trainer.tree.cost import ATTENTION_PASSES, LINEAR_PASSES, ModelCost
from services.trainer.tree.forest import Forest, Ints, build_forest
from services.trainer.tree.plan import CALLS_A_GROUP, in_tiles, plan_attention, stacked
from services.trainer.tree.scoring import unmergeable


class Way(Enum):
    """One forest; samples laid end to end; or the library's own attention over padded rows."""

    MERGED = "merged"
    APART = "apart"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Work:
    """Forward and backward, in floating-point operations, and the attention calls of one layer."""

    operations: float
    calls: int

    def seconds(self, pace: Pace, layers: int) -> float:
        """Predicted."""
        return self.operations * pace.operation_s + self.calls * layers * pace.call_s


@dataclass(frozen=True, slots=True)
class Choice:
    """`forest`: what is computed. `reason`: why it isn't merged; empty where it is. `apart`: branch by branch."""

    way: Way
    forest: Forest
    reason: str
    computed: Work
    apart: Work


NO_WORK = Work(0.0, 0)


def choose(samples: Sequence[Ints], trained: Sequence[Ints], config: Any, cost: ModelCost | None, pace: Pace) -> Choice:
    """The faster way that is exact. `trained`: the places in each sample that are scored, none of them 0."""
    why = unmergeable(config, max(len(sample) for sample in samples))
    if why is None and cost is None:
        why = f"{getattr(config, 'model_type', 'model')}: not a decoder whose cost is known"
    if why is not None or cost is None:
        return unmerged(samples, Way.LIBRARY, why or "", cost, trained)
    merged = build_forest(samples)
    if len(merged.token_ids_S) == sum(len(sample) for sample in samples):
        work = apart_work(samples, trained, cost)
        return Choice(Way.APART, merged, "nothing is shared", work, work)
    merged_work, work = work_of(merged, trained, cost), apart_work(samples, trained, cost)
    merged_s, apart_s = (each.seconds(pace, config.num_hidden_layers) for each in (merged_work, work))
    if merged_s >= apart_s:
        gain = f"no gain: {merged_s:.3g} s predicted merged, {apart_s:.3g} s branch by branch"
        return unmerged(samples, Way.APART, gain, cost, trained)
    return Choice(Way.MERGED, merged, "", merged_work, work)


def unmerged(samples: Sequence[Ints], way: Way, reason: str, cost: ModelCost | None, trained: Sequence[Ints]) -> Choice:
    """Branch by branch, for a reason."""
    work = NO_WORK if cost is None else apart_work(samples, trained, cost)
    return Choice(way, build_forest(samples, merge=False), reason, work, work)


def apart_work(samples: Sequence[Ints], trained: Sequence[Ints], cost: ModelCost) -> Work:
    """What `work_of` says of samples laid end to end, without laying them."""
    lengths = [len(sample) for sample in samples if len(sample)]
    rows, pairs = sum(len(places) for places in trained), sum(length * (length + 1) // 2 for length in lengths)
    linear = sum(lengths) * cost.layers_per_token + rows * cost.head_per_token
    starts = np.cumsum([0, *lengths]).tolist()
    causals = stacked(list(zip(starts, lengths, strict=False)))
    depths_S = np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)])
    calls = CALLS_A_GROUP * len(in_tiles((causals, (), ()), depths_S)) or len(causals)
    return Work(LINEAR_PASSES * linear + ATTENTION_PASSES * pairs * cost.attention_per_pair, calls)


def work_of(forest: Forest, trained: Sequence[Ints], cost: ModelCost) -> Work:
    """What a forest costs, with a row of logits for every slot that predicts a token which is scored."""
    plan = plan_attention(forest)
    predictors = [forest.parents_S[forest.sample_slots(i)[places]] for i, places in enumerate(trained)]
    rows = len(np.unique(np.concatenate(predictors)))
    linear = len(forest.token_ids_S) * cost.layers_per_token + rows * cost.head_per_token
    operations = LINEAR_PASSES * linear + ATTENTION_PASSES * plan.scores * cost.attention_per_pair
    return Work(operations, plan.calls)
