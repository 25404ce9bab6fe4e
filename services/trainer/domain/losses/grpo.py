"""GRPO: PPO's clipped tokens under advantages that are divided by their group's standard deviation.

Source: DeepSeekMath, arXiv 2402.03300, equation 3 and section 4.1.2. The division happens where advantages are made
(contract/rewards.py). It refuses the KL term to a reference model (its weight is 0) and the mean of each answer by
its own length: the step's normalisation says how tokens are averaged.
"""

from dataclasses import dataclass

import torch

from services.trainer.domain.losses.clipping import Interval, surrogate
from services.trainer.domain.losses.interface import TokenBatch, TokenTerms


@dataclass(frozen=True, slots=True)
class Grpo:
    """-min(r A, clip(r) A) with r = pi / pi_sampled of the token."""

    interval: Interval

    @property
    def per_token(self) -> bool:
        """See Loss.per_token."""
        return True

    def describe(self) -> str:
        """The interval in force."""
        return f"grpo: ratio of a token clipped to {self.interval}; advantages over their group's standard deviation"

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """See Loss.terms."""
        ratio_N = torch.exp(batch.logprobs_N - batch.sampled_N)
        return surrogate(ratio_N, batch.advantages_N, self.interval)
