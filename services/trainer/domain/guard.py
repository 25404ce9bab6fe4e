"""What a batch's forward and backward pass showed, and whether a step may be taken on it.

It refuses numbers that aren't finite, and a batch that the trainer and the engine see too differently: a loss without
a trust region can collapse on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.trainer.domain.histograms import Histogram
from services.trainer.domain.merging import Merging
from services.trainer.domain.refusal import StepRefused

STALE_ALLOWANCE = 10.0
"""Tokens sampled from older weights differ by what training changed too, so the limit is this much wider for them."""


@dataclass(frozen=True, slots=True)
class DomainStats:
    """Token means over a domain's trained tokens; see BatchStats."""

    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    ratio_mean: float = 0.0
    ratio_max: float = 0.0
    clip_share: float = 0.0
    mismatch_kl: float = 0.0
    logprob_diff_mean: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Over a batch's trained tokens. `fresh`: tokens sampled from exactly the weights that are being trained.

    `loss`: the objective, sum of weight * loss. `mismatch_kl`: mean of the k3 estimate exp(d) - 1 - d,
    d = trainer's log-probability - engine's (Schulman 2020); `fresh_kl`: the same over fresh tokens.
    `draft`: mean divergence of the draft head from the policy (`mtp_kl`, nats) and the share of its guesses that
    would be accepted (`mtp_acceptance`); empty where none is trained.
    `grad_noise`: see domain/noise.py; 1 is expected of pure noise.
    """

    tokens: int
    fresh_tokens: int
    loss: float
    entropy: float
    ratio_mean: float
    ratio_max: float
    clip_share: float
    mismatch_kl: float
    logprob_diff_mean: float
    fresh_diff_mean: float
    fresh_diff_max: float
    grad_noise: float
    fresh_kl: float = 0.0
    domains: Mapping[str, DomainStats] = field(default_factory=dict[str, DomainStats])
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    draft: Mapping[str, float] = field(default_factory=dict[str, float])
    merging: Merging = field(default_factory=Merging)


def check_mismatch(stats: BatchStats, limit: float) -> None:
    """Raise StepRefused when engine and trainer disagree by more than `limit` nats a token on average; 0 = no guard."""
    if not math.isfinite(stats.loss):
        raise StepRefused("loss is not finite")
    if limit <= 0:
        return
    if stats.fresh_tokens and stats.fresh_diff_mean > limit:
        raise StepRefused(
            f"mismatch guard: mean |log-probability difference| of engine and trainer is {stats.fresh_diff_mean:.3g} "
            f"over {stats.fresh_tokens} tokens of the same weights; allowed {limit:g}"
        )
    if stats.logprob_diff_mean > limit * STALE_ALLOWANCE:
        raise StepRefused(
            f"mismatch guard: mean |log-probability difference| of sampling and trained weights is "
            f"{stats.logprob_diff_mean:.3g} over {stats.tokens} tokens; allowed {limit * STALE_ALLOWANCE:g}"
        )


def mismatch_alarm(stats: BatchStats, alarm: float) -> str:
    """Why a step's mismatch KL, in nats a token, is worth a warning; empty when it isn't. `alarm` 0 = never."""
    if alarm <= 0:
        return ""
    if stats.fresh_tokens and stats.fresh_kl > alarm:
        return (
            f"mismatch KL is {stats.fresh_kl:.3g} over {stats.fresh_tokens} tokens of the same weights; alarm {alarm:g}"
        )
    if stats.mismatch_kl > alarm * STALE_ALLOWANCE:
        wide = alarm * STALE_ALLOWANCE
        return f"mismatch KL is {stats.mismatch_kl:.3g} over {stats.tokens} tokens, older ones included; alarm {wide:g}"
    return ""
