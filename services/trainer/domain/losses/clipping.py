"""The clipped surrogate that PPO brought in, for ratios of tokens or of sequences.

Source: PPO, arXiv 1707.06347, equation 7; two widths as in DAPO, arXiv 2503.14476, equation 10. It refuses to say
what the ratio is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.domain.losses.interface import TokenTerms


@dataclass(frozen=True, slots=True)
class Interval:
    """[1 - low, 1 + high]."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"[{1 - self.low:.9g}, {1 + self.high:.9g}]"


def surrogate(ratio_N: Tensor, advantages_N: Tensor, interval: Interval) -> TokenTerms:
    """-min(r A, clip(r) A). A token is cut where its advantage pushes a ratio further out: no gradient is left."""
    clipped_N = ratio_N.clamp(1 - interval.low, 1 + interval.high)
    cut_N = clipped_N * advantages_N < ratio_N * advantages_N
    weight_N = torch.where(cut_N, clipped_N, ratio_N)
    return TokenTerms(-weight_N * advantages_N, cut_N, weight_N.detach())
