"""Forward and backward over one batch: micro-batches in two halves, one global denominator, and what they showed.

The objective is sum over trained tokens of weight * loss with weights of the whole batch, so packing doesn't change it.
It refuses what isn't finite, naming episode, turn and token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.blame import blame
from services.trainer.adapters.objective import Objective, TokenScores, picked
from services.trainer.adapters.tally import Tally
from services.trainer.adapters.token_logprobs import transformed_logprobs
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.packing import micro_batches
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row
from services.trainer.ports import Ranks, Recipe
from services.trainer.ranks.sharding import local


def clear_gradients(model: Any) -> None:
    """Forget accumulated gradients."""
    model.zero_grad(set_to_none=True)


def gradient(model: Any) -> list[Tensor]:
    """A copy of the accumulated gradient, a tensor a parameter: this rank's part of it."""
    return [local(p.grad.detach()).clone() if p.grad is not None else torch.zeros(()) for p in model.parameters()]


class BatchPass:
    """One pass over this rank's rows; use it once."""

    def __init__(self, model: Any, recipe: Recipe, ranks: Ranks) -> None:
        self._model = model
        self._recipe = recipe
        self._ranks = ranks
        self._tally = Tally(recipe.policy_step)
        self._objective = Objective(recipe.loss, self._tally)

    def run(self, parts: Sequence[Sequence[Row]]) -> BatchStats:
        """Leave the batch's gradient in the model's parameters; `parts`: this rank's rows of its two halves.

        Raises StepRefused, at every rank the same.
        """
        if not any(self._ranks.gather(any(row.trained_tokens for part in parts for row in part))):
            raise StepRefused("no episode of the batch has anything to train")
        clear_gradients(self._model)
        gradients: list[list[Tensor]] = []
        for part in parts:
            with self._ranks.summed(self._model):
                for micro_batch in micro_batches(part, self._recipe.micro_batch_tokens):
                    self._one(micro_batch)
            gradients.append(gradient(self._model))
        self._check_gradients([row for part in parts for row in part])
        return self._stats(*gradients)

    def _stats(self, first: Sequence[Tensor], both: Sequence[Tensor]) -> BatchStats:
        whole = Tally(self._recipe.policy_step)
        for tally in self._ranks.gather(self._tally):
            whole.plus(tally)
        apart_R, all_R = zip(*self._ranks.gather(squares(first, both)), strict=True)
        return whole.stats(sum(apart_R) / sum(all_R) if sum(all_R) > 0 else 0.0)

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
        if all(self._ranks.gather(self._finite())):
            return
        with self._ranks.whole(self._model):
            guilty = blame(rows, self._finite_of)
            if guilty:
                raise StepRefused(f"{guilty}: gradient is not finite")
        raise StepRefused("gradient is not finite, though each episode's is")

    def _finite_of(self, rows: Sequence[Row]) -> bool:
        clear_gradients(self._model)
        for micro_batch in micro_batches(rows, self._recipe.micro_batch_tokens):
            self._one(micro_batch)
        return self._finite()

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(local(p.grad)).all()) for p in self._model.parameters() if p.grad is not None)


def entropies(logits_NV: Tensor) -> Tensor:
    """Entropy, in nats, of the untransformed distribution."""
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)


def squares(first: Sequence[Tensor], both: Sequence[Tensor]) -> tuple[float, float]:
    """|g1 - g2|^2 and |g1 + g2|^2 from the first half's gradient g1 and the whole g1 + g2."""
    apart = sum(float((2 * a.double() - b.double()).pow(2).sum()) for a, b in zip(first, both, strict=True))
    return apart, sum(float(g.double().pow(2).sum()) for g in both)
