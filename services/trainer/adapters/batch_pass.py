"""Forward and backward over one batch: micro-batches in two halves, one global denominator, and what they showed.

The objective is sum over trained tokens of weight * loss with weights of the whole batch, so packing doesn't change it.
It refuses what isn't finite, naming episode, turn and token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.objective import Objective, TokenScores, picked
from services.trainer.adapters.tally import Tally
from services.trainer.adapters.token_logprobs import transformed_logprobs
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.packing import halves, micro_batches
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row
from services.trainer.ports import Recipe


def clear_gradients(model: Any) -> None:
    """Forget accumulated gradients."""
    model.zero_grad(set_to_none=True)


def gradient(model: Any) -> list[Tensor]:
    """A copy of the accumulated gradient, a tensor a parameter."""
    return [p.grad.detach().clone() if p.grad is not None else torch.zeros(()) for p in model.parameters()]


class BatchPass:
    """One pass; use it once."""

    def __init__(self, model: Any, recipe: Recipe) -> None:
        self._model = model
        self._recipe = recipe
        self._tally = Tally(recipe.policy_step)
        self._objective = Objective(recipe.loss, self._tally)

    def run(self, rows: Sequence[Row]) -> BatchStats:
        """Leave the batch's gradient in the model's parameters. Raises StepRefused."""
        tokens = sum(row.trained_tokens for row in rows)
        if tokens == 0:
            raise StepRefused("no episode of the batch has anything to train")
        clear_gradients(self._model)
        gradients: list[list[Tensor]] = []
        for half in halves(rows):
            for micro_batch in micro_batches(half, self._recipe.micro_batch_tokens):
                self._one(micro_batch)
            gradients.append(gradient(self._model))
        self._check_gradients(rows)
        return self._tally.stats(noise_share(*gradients))

    def _one(self, micro_batch: Sequence[Row]) -> None:
        width = micro_batch[0].length
        ids_BT = torch.zeros(len(micro_batch), width, dtype=torch.long)
        for index, row in enumerate(micro_batch):
            ids_BT[index, : row.length] = torch.from_numpy(row.token_ids_T)
        # Padding stands on the right, where causal attention never looks, so no mask is needed.
        logits_BTV: Tensor = self._model(input_ids=ids_BT, use_cache=False).logits
        rows_N = torch.from_numpy(np.repeat(np.arange(len(micro_batch)), [r.trained_tokens for r in micro_batch]))
        places_N = torch.from_numpy(np.concatenate([np.flatnonzero(r.trained_T) for r in micro_batch]))
        logits_NV = logits_BTV[rows_N, places_N - 1]
        logprobs_N = transformed_logprobs(
            logits_NV, ids_BT[rows_N, places_N], picked(micro_batch, "temperatures_T"), picked(micro_batch, "top_ps_T")
        )
        self._objective(micro_batch, TokenScores(logprobs_N, entropies(logits_NV.detach().float()))).backward()

    def _check_gradients(self, rows: Sequence[Row]) -> None:
        if self._finite():
            return
        # The sum hides whose it is: go through the rows one by one.
        for row in rows:
            clear_gradients(self._model)
            self._one([row])
            if not self._finite():
                raise StepRefused(f"episode {row.episode_id}: gradient is not finite")
        raise StepRefused("gradient is not finite, though each episode's is")

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(p.grad).all()) for p in self._model.parameters() if p.grad is not None)


def entropies(logits_NV: Tensor) -> Tensor:
    """Entropy, in nats, of the untransformed distribution."""
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)


def noise_share(first: Sequence[Tensor], both: Sequence[Tensor]) -> float:
    """|g1 - g2|^2 / |g1 + g2|^2 from the first half's gradient g1 and the whole g1 + g2; 0 when that is 0."""
    whole = sum(float(g.double().pow(2).sum()) for g in both)
    apart = sum(float((2 * a.double() - b.double()).pow(2).sum()) for a, b in zip(first, both, strict=True))
    return apart / whole if whole > 0 else 0.0
