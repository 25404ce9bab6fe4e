"""CISPO: the clipped importance ratio is a weight, so every token keeps a gradient.

Source: MiniMax-M1, arXiv 2506.13585, equation 4, with one absolute cap. It refuses a lower bound: the paper uses none.
"""

from dataclasses import dataclass

import torch

from services.trainer.domain.losses.interface import TokenBatch, TokenTerms


@dataclass(frozen=True, slots=True)
class Cispo:
    """-sg(min(r, cap)) * A * log pi with r = pi / pi_sampled."""

    cap: float

    @property
    def per_token(self) -> bool:
        """See Loss.per_token."""
        return True

    def describe(self) -> str:
        """The interval in force."""
        return f"cispo: importance ratio of a token clipped to [0, {self.cap:g}], no gradient through it"

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """See Loss.terms."""
        ratio_N = torch.exp(batch.logprobs_N.detach() - batch.sampled_N)
        weight_N = ratio_N.clamp(max=self.cap)
        return TokenTerms(-weight_N * batch.advantages_N * batch.logprobs_N, ratio_N > self.cap, weight_N)
