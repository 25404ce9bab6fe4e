"""Sums, maxima and histograms over the trained tokens of a batch, in all and by domain.

Everything it holds adds up over micro-batches and ranks. It refuses to hold a mean: `stats` makes them at the end.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.trainer.domain.guard import BatchStats, DomainStats
from services.trainer.domain.histograms import RATIO_EDGES, Histogram
from services.trainer.domain.losses import TokenTerms
from services.trainer.domain.rows import Row

OF_ALL = ("tokens", "objective", "loss", "entropy", "ratio", "cut", "k3", "difference")
OF_FRESH = ("fresh", "fresh_difference", "fresh_k3")
MEASURES = (*OF_ALL, *OF_FRESH)


class Tally:
    """What was seen so far. `policy_step`: the step whose weights are trained. Plain enough to be sent to a rank."""

    def __init__(self, policy_step: int) -> None:
        self._policy_step = policy_step
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._ratio_max: dict[str, float] = {}
        self._fresh_max = 0.0
        self._ratio = Histogram.empty(RATIO_EDGES)

    def add(self, rows: Sequence[Row], logprobs_N: Tensor, entropies_N: Tensor, terms: TokenTerms) -> None:
        """Trained tokens of some rows, row after row; no gradient is kept."""
        difference_N = _numbers(logprobs_N) - _picked(rows, "logprobs_T")
        ratio_N = np.exp(difference_N)
        loss_N = _numbers(terms.loss_N)
        fresh_N = (_picked(rows, "policy_steps_T") == self._policy_step).astype(np.float64)
        values_MN = np.stack(
            [
                np.ones_like(loss_N),
                _picked(rows, "weights_T") * loss_N,
                loss_N,
                _numbers(entropies_N),
                ratio_N,
                _numbers(terms.cut_N),
                ratio_N - 1 - difference_N,
                np.abs(difference_N),
                fresh_N,
                fresh_N * np.abs(difference_N),
                fresh_N * (ratio_N - 1 - difference_N),
            ]
        )
        self._ratio = self._ratio.plus(Histogram.of(RATIO_EDGES, ratio_N))
        self._fresh_max = max(self._fresh_max, float((fresh_N * np.abs(difference_N)).max(initial=0.0)))
        domains_N = np.repeat([row.domain for row in rows], [row.trained_tokens for row in rows])
        for domain in sorted({row.domain for row in rows}):
            mine_N = domains_N == domain
            if mine_N.any():
                self._count(domain, values_MN[:, mine_N].sum(axis=1), float(ratio_N[mine_N].max()))

    def plus(self, other: "Tally") -> None:
        """Add what another part of the same batch saw: another rank, say."""
        for domain, sums_M in other._sums.items():
            self._count(domain, sums_M, other._ratio_max[domain])
        self._ratio = self._ratio.plus(other._ratio)
        self._fresh_max = max(self._fresh_max, other._fresh_max)

    def stats(self, grad_noise: float) -> BatchStats:
        """The means; of nothing they are 0."""
        total = _means(sum(self._sums.values(), np.zeros(len(MEASURES))))
        return BatchStats(
            tokens=int(total["tokens"]),
            fresh_tokens=int(total["fresh"]),
            loss=total["objective"],
            entropy=total["entropy"],
            ratio_mean=total["ratio"],
            ratio_max=max(self._ratio_max.values(), default=0.0),
            clip_share=total["cut"],
            mismatch_kl=total["k3"],
            logprob_diff_mean=total["difference"],
            fresh_diff_mean=total["fresh_difference"],
            fresh_diff_max=self._fresh_max,
            grad_noise=grad_noise,
            fresh_kl=total["fresh_k3"],
            domains={name: self._domain(name) for name in sorted(self._sums)},
            histograms={"ratio": self._ratio},
        )

    def _domain(self, name: str) -> DomainStats:
        mean = _means(self._sums[name])
        return DomainStats(
            tokens=int(mean["tokens"]),
            loss=mean["loss"],
            entropy=mean["entropy"],
            ratio_mean=mean["ratio"],
            ratio_max=self._ratio_max[name],
            clip_share=mean["cut"],
            mismatch_kl=mean["k3"],
            logprob_diff_mean=mean["difference"],
        )

    def _count(self, domain: str, sums_M: NDArray[np.float64], ratio_max: float) -> None:
        self._sums[domain] = self._sums.get(domain, np.zeros(len(MEASURES))) + sums_M
        self._ratio_max[domain] = max(self._ratio_max.get(domain, 0.0), ratio_max)


def _means(sums_M: NDArray[np.float64]) -> dict[str, float]:
    """Token means; counts and the objective, whose weights hold its denominator, stay sums."""
    sums = dict(zip(MEASURES, sums_M.tolist(), strict=True))
    means = {name: sums[name] / max(1.0, sums["tokens"]) for name in OF_ALL}
    fresh = {name: sums[name] / max(1.0, sums["fresh"]) for name in OF_FRESH}
    return means | fresh | {name: sums[name] for name in ("tokens", "objective", "fresh")}


def _numbers(values_N: Tensor) -> NDArray[np.float64]:
    return values_N.detach().to("cpu", torch.float64).numpy()


def _picked(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    return np.concatenate([getattr(row, name)[row.trained_T] for row in rows]).astype(np.float64)
