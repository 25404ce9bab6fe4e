"""One forward and backward over a workload's samples: ours on the forest, and the baselines it is held against.

Every step minimises the same loss, sum over trained tokens of -weight * log p, with the same model, and adds to the
gradients of its parameters. No baseline pads, repeats keys for grouped queries, or makes a logit that isn't trained.
"""

# transformers' and torch's modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loadtests.tree.workloads import Sample
from services.trainer.tree.forest import Forest, Ints, build_forest
from services.trainer.tree.head import Targets
from services.trainer.tree.passes import PassOptions, Scores, gradient_pass

Weights = Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Linear:
    """-weight * log p of each target: what CISPO is once its ratios are known."""

    weights_N: Tensor

    def __call__(self, scores: Scores, targets_N: Ints) -> Tensor:
        """The share of the targets named."""
        return -(scores.logprobs_N * self.weights_N[torch.from_numpy(targets_N)]).sum()


def random_weights(samples: Sequence[Sample], seed: int, dtype: torch.dtype) -> list[Tensor]:
    """A weight for each token of each sample: advantages with both signs."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(len(sample.ids_T), generator=generator, dtype=dtype) for sample in samples]


def forest_step(
    model: Any, samples: Sequence[Sample], weights: Weights, budget_tokens: int, merge: bool = True
) -> float:
    """Loss of all samples over one forest, the making of the forest included; gradients are added."""
    forest = build_forest([sample.ids_T for sample in samples], merge=merge)
    return step_on(forest, model, samples, weights, budget_tokens)


def step_on(forest: Forest, model: Any, samples: Sequence[Sample], weights: Weights, budget_tokens: int) -> float:
    """The same on a forest that is there already."""
    trained_N = np.concatenate([sample.trained_T for sample in samples])
    slots_N = forest.slots_N[trained_N]
    ones_N = np.ones(len(slots_N))
    targets = Targets(forest.parents_S[slots_N], forest.token_ids_S[slots_N], ones_N, ones_N)
    objective = Linear(torch.cat(list(weights))[torch.from_numpy(trained_N)])
    return gradient_pass(model, forest, targets, objective, PassOptions(budget_tokens, local=True)).loss


def library_step(model: Any, samples: Sequence[Sample], weights: Weights, batch_tokens: int) -> float:
    """Loss of the samples, those of one length side by side up to `batch_tokens`, with the library's own attention."""
    total = 0.0
    for batch in _batches(samples, batch_tokens):
        ids_BT = torch.from_numpy(np.stack([samples[index].ids_T for index in batch]))
        trained_BT = torch.from_numpy(np.stack([samples[index].trained_T for index in batch]))
        weights_BT = torch.stack([weights[index] for index in batch])
        hidden_BTE = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
        before_BT = torch.roll(trained_BT, -1, dims=1)
        logits_NV = model.lm_head(hidden_BTE[before_BT])
        logprobs_N = torch.log_softmax(logits_NV, dim=-1).gather(1, ids_BT[trained_BT][:, None])[:, 0]
        loss = -(logprobs_N * weights_BT[trained_BT]).sum()
        loss.backward()
        total += float(loss.detach())
    return total


def _batches(samples: Sequence[Sample], batch_tokens: int) -> list[list[int]]:
    by_length: dict[int, list[int]] = {}
    for index, sample in enumerate(samples):
        by_length.setdefault(len(sample.ids_T), []).append(index)
    batches: list[list[int]] = []
    for length, indices in by_length.items():
        side_by_side = max(1, batch_tokens // length)
        batches += [indices[first : first + side_by_side] for first in range(0, len(indices), side_by_side)]
    return batches
