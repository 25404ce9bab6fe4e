"""Forward and backward over one batch: micro-batches in two halves, one global denominator, and what they showed.

The objective is sum over trained tokens of loss_token / N with N the trained tokens of the whole batch, so packing
doesn't change it. It refuses a token whose loss isn't finite, naming the episode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

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

    def run(self, rows: Sequence[Row]) -> BatchStats:
        """Leave the batch's gradient in the model's parameters. Raises StepRefused."""
        tokens = sum(row.trained_tokens for row in rows)
        if tokens == 0:
            raise StepRefused("no episode of the batch has anything to train")
        clear_gradients(self._model)
        gradients: list[list[Tensor]] = []
        for half in halves(rows):
            for micro_batch in micro_batches(half, self._recipe.micro_batch_tokens):
                self._one(micro_batch, tokens)
            gradients.append(gradient(self._model))
        self._check_gradients(rows, tokens)
        return self._tally.stats(tokens, noise_share(*gradients))

    def _one(self, micro_batch: Sequence[Row], tokens: int) -> None:
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
        sampled_N = picked(micro_batch, "logprobs_T").float()
        terms = self._recipe.loss.terms(logprobs_N, sampled_N, picked(micro_batch, "advantages_T").float())
        self._check_loss(micro_batch, rows_N, terms.loss_N.detach())
        (terms.loss_N.sum() / tokens).backward()
        self._tally.add(terms.loss_N.detach(), terms.cut_N, logprobs_N.detach(), sampled_N)
        self._tally.add_fresh(logprobs_N.detach() - sampled_N, picked(micro_batch, "policy_steps_T"))
        self._tally.add_entropy(logits_NV.detach().float())

    def _check_loss(self, micro_batch: Sequence[Row], rows_N: Tensor, loss_N: Tensor) -> None:
        bad_N = ~torch.isfinite(loss_N)
        if bool(bad_N.any()):
            row = micro_batch[int(rows_N[bad_N][0])]
            raise StepRefused(f"episode {row.episode_id}: loss is not finite")

    def _check_gradients(self, rows: Sequence[Row], tokens: int) -> None:
        if self._finite():
            return
        # The sum hides whose it is: go through the rows one by one.
        for row in rows:
            clear_gradients(self._model)
            self._one([row], tokens)
            if not self._finite():
                raise StepRefused(f"episode {row.episode_id}: gradient is not finite")
        raise StepRefused("gradient is not finite, though each episode's is")

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(p.grad).all()) for p in self._model.parameters() if p.grad is not None)


class Tally:
    """Sums over the trained tokens of a batch."""

    def __init__(self, policy_step: int) -> None:
        self._policy_step = policy_step
        self._sums: dict[str, float] = {}
        self._fresh_tokens = 0
        self._ratio_max = 0.0
        self._fresh_max = 0.0

    def add(self, loss_N: Tensor, cut_N: Tensor, logprobs_N: Tensor, sampled_N: Tensor) -> None:
        """Loss, ratio and mismatch terms of some tokens."""
        difference_N = (logprobs_N - sampled_N).double()
        ratio_N = difference_N.exp()
        self._count("loss", loss_N)
        self._count("cut", cut_N)
        self._count("ratio", ratio_N)
        self._count("k3", ratio_N - 1 - difference_N)
        self._count("difference", difference_N.abs())
        self._ratio_max = max(self._ratio_max, float(ratio_N.max()))

    def add_fresh(self, difference_N: Tensor, policy_steps_N: Tensor) -> None:
        """Differences of tokens that were sampled from the very weights that are trained."""
        fresh_N = difference_N[policy_steps_N == self._policy_step].abs()
        if fresh_N.numel():
            self._fresh_tokens += fresh_N.numel()
            self._count("fresh", fresh_N)
            self._fresh_max = max(self._fresh_max, float(fresh_N.max()))

    def add_entropy(self, logits_NV: Tensor) -> None:
        """Entropy, in nats, of the untransformed distribution."""
        logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
        self._count("entropy", -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1))

    def stats(self, tokens: int, grad_noise: float) -> BatchStats:
        """The means."""
        mean = {name: total / tokens for name, total in self._sums.items()}
        return BatchStats(
            tokens=tokens,
            fresh_tokens=self._fresh_tokens,
            loss=mean["loss"],
            entropy=mean["entropy"],
            ratio_mean=mean["ratio"],
            ratio_max=self._ratio_max,
            clip_share=mean["cut"],
            mismatch_kl=mean["k3"],
            logprob_diff_mean=mean["difference"],
            fresh_diff_mean=self._sums.get("fresh", 0.0) / max(1, self._fresh_tokens),
            fresh_diff_max=self._fresh_max,
            grad_noise=grad_noise,
        )

    def _count(self, name: str, values: Tensor) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + float(values.double().sum())


def picked(micro_batch: Sequence[Row], name: str) -> Tensor:
    """One array of the rows, at the trained tokens only."""
    return torch.from_numpy(np.concatenate([getattr(row, name)[row.trained_T] for row in micro_batch]))


def noise_share(first: Sequence[Tensor], both: Sequence[Tensor]) -> float:
    """|g1 - g2|^2 / |g1 + g2|^2 from the first half's gradient g1 and the whole g1 + g2; 0 when that is 0."""
    whole = sum(float(g.double().pow(2).sum()) for g in both)
    apart = sum(float((2 * a.double() - b.double()).pow(2).sum()) for a, b in zip(first, both, strict=True))
    return apart / whole if whole > 0 else 0.0
