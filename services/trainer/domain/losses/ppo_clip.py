"""PPO-clip: a token's ratio may not be pushed out of an interval around 1.

Source: arXiv 1707.06347, equation 7. It refuses a value function: advantages come from the group.
"""

from dataclasses import dataclass

import torch

from services.trainer.domain.losses.clipping import Interval, surrogate
from services.trainer.domain.losses.interface import TokenBatch, TokenTerms


@dataclass(frozen=True, slots=True)
class PpoClip:
    """-min(r A, clip(r) A) with r = pi / pi_sampled of the token."""

    interval: Interval

    @property
    def per_token(self) -> bool:
        """See Loss.per_token."""
        return True

    def describe(self) -> str:
        """The interval in force."""
        return f"ppo_clip: ratio of a token clipped to {self.interval}"

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """See Loss.terms."""
        ratio_N = torch.exp(batch.logprobs_N - batch.sampled_N)
        return surrogate(ratio_N, batch.advantages_N, self.interval)
