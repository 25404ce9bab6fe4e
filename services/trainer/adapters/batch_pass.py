"""Forward and backward over one batch: a forest a half, or branch by branch, and what that showed.

The objective is sum over trained tokens of weight * loss with weights of the whole batch, so neither merging nor
cutting changes it. It refuses what isn't finite, naming episode, turn and token.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from services.trainer.adapters.blame import blame
from services.trainer.adapters.library_pass import library_pass
from services.trainer.adapters.merging import choose_way
from services.trainer.adapters.objective import Objective
from services.trainer.adapters.row_targets import Beside, RowObjective, row_targets, trained_slots
from services.trainer.adapters.tally import Tally
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.merging import Merging
from services.trainer.domain.noise import noise_ratio
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row
from services.trainer.ports import Ranks, Recipe
from services.trainer.ranks.sharding import local
from services.trainer.tree.choice import Choice, Way
from services.trainer.tree.passes import PassOptions, gradient_pass


def clear_gradients(model: Any) -> None:
    """Forget accumulated gradients."""
    model.zero_grad(set_to_none=True)


def gradient(model: Any) -> list[Tensor]:
    """The accumulated gradient itself, a tensor a parameter: this rank's part of it."""
    return [local(p.grad.detach()) if p.grad is not None else torch.zeros(()) for p in model.parameters()]


class BatchPass:
    """One pass over this rank's rows; use it once."""

    def __init__(self, model: Any, recipe: Recipe, ranks: Ranks, beside: Beside | None = None) -> None:
        self._model = model
        self._recipe = recipe
        self._ranks = ranks
        self._beside = beside
        self._merging = Merging()
        self._tally = Tally(recipe.policy_step)
        self._objective = Objective(recipe.loss, self._tally)

    def run(self, parts: Sequence[Sequence[Row]]) -> BatchStats:
        """Leave the batch's gradient in the model's parameters; `parts`: this rank's rows of its two halves.

        Raises StepRefused, at every rank the same.
        """
        if not any(self._ranks.gather(any(row.trained_tokens for part in parts for row in part))):
            raise StepRefused("no episode of the batch has anything to train")
        clear_gradients(self._model)
        first, second = parts
        self._summed(first)
        of_first = [part.clone() for part in gradient(self._model)]
        self._summed(second)
        self._check_gradients([*first, *second])
        return self._stats(parts, of_first, gradient(self._model))

    def _stats(self, parts: Sequence[Sequence[Row]], first: Sequence[Tensor], both: Sequence[Tensor]) -> BatchStats:
        whole = Tally(self._recipe.policy_step)
        for tally in self._ranks.gather(self._tally):
            whole.plus(tally)
        weights_R = self._ranks.gather([float(sum(row.weights_T.sum() for row in part)) for part in parts])
        share = sum(weights[0] for weights in weights_R) / sum(map(sum, weights_R))
        apart_R, all_R = zip(*self._ranks.gather(squares(first, both, share)), strict=True)
        merging = Merging()
        for part in self._ranks.gather(self._merging):
            merging = merging.plus(part)
        return replace(whole.stats(noise_ratio(sum(apart_R), sum(all_R), share)), merging=merging)

    def _summed(self, rows: Sequence[Row]) -> None:
        with self._ranks.summed(self._model):
            self._half(rows)

    def _half(self, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if row.trained_tokens]
        if not rows:
            return
        choice, expected = choose_way(self._model, rows, self._recipe)
        before_s = time.perf_counter()
        self._add(rows, choice, self._beside)
        self._merging = self._merging.plus(replace(expected, pass_s=time.perf_counter() - before_s))

    def _add(self, rows: Sequence[Row], choice: Choice, beside: Beside | None) -> None:
        recipe = self._recipe
        options = PassOptions(recipe.micro_batch_tokens, recipe.activation_checkpointing, recipe.loss.per_token)
        if choice.way is Way.LIBRARY:
            library_pass(self._model, rows, self._objective, options, beside)
            return
        if beside is not None:
            options = replace(options, beside=lambda hidden_SE, of: beside(hidden_SE, of, trained_slots(rows, of)))
        targets = row_targets(rows, choice.forest)
        gradient_pass(self._model, choice.forest, targets, RowObjective(rows, self._objective), options)

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
        self._add(rows, choose_way(self._model, rows, self._recipe)[0], None)
        return self._finite()

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(local(p.grad)).all()) for p in self._model.parameters() if p.grad is not None)


def squares(first: Sequence[Tensor], both: Sequence[Tensor], share: float) -> tuple[float, float]:
    """|g1 - share * g|^2 and |g|^2, of this rank's parts, from the first half's gradient g1 and the whole g."""
    apart = sum(float((a.double() - share * b.double()).pow(2).sum()) for a, b in zip(first, both, strict=True))
    return apart, sum(float(g.double().pow(2).sum()) for g in both)
