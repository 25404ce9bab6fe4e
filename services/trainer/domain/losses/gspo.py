"""GSPO: one ratio a sequence, the geometric mean of its tokens' ratios.

Source: arXiv 2507.18071, equations 5 and 7, in the token form of equations 13 and 14: its value is the same, its
gradient is the same where a sequence has one advantage, and each turn may have its own. Advantages are divided by their
group's standard deviation (equation 6). It refuses to see a part of a sequence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.domain.losses.clipping import Interval, surrogate
from services.trainer.domain.losses.interface import TokenBatch, TokenTerms


@dataclass(frozen=True, slots=True)
class Gspo:
    """-min(s A, clip(s) A) with s = sg((prod pi / pi_sampled)^(1/|y|)) * pi / sg(pi)."""

    interval: Interval

    @property
    def per_token(self) -> bool:
        """See Loss.per_token."""
        return False

    def describe(self) -> str:
        """The interval in force."""
        return f"gspo: ratio of a sequence clipped to {self.interval}; advantages over their group's standard deviation"

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """See Loss.terms."""
        fixed_N = batch.logprobs_N.detach()
        mean_N = sequence_mean(fixed_N - batch.sampled_N, batch.sequences_N)
        ratio_N = torch.exp(mean_N + batch.logprobs_N - fixed_N)
        return surrogate(ratio_N, batch.advantages_N, self.interval)


def sequence_mean(values_N: Tensor, sequences_N: Tensor) -> Tensor:
    """Each token's value replaced by the mean over its sequence."""
    if not len(values_N):
        return values_N
    sums_S = values_N.new_zeros(int(sequences_N.max()) + 1)
    totals_S = sums_S.index_add(0, sequences_N, values_N)
    counts_S = sums_S.index_add(0, sequences_N, torch.ones_like(values_N))
    return (totals_S / counts_S)[sequences_N]
