"""Losses of a token, behind one small interface. It refuses to normalise: the step divides by the tokens."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """Per trained token: the loss, and whether its ratio was cut."""

    loss_N: Tensor
    cut_N: Tensor


class Loss(Protocol):
    """A policy-gradient loss over trained tokens."""

    def describe(self) -> str:
        """The interval in force, for people."""
        ...

    def terms(self, logprobs_N: Tensor, sampled_logprobs_N: Tensor, advantages_N: Tensor) -> TokenTerms:
        """`logprobs_N` carries the gradient; `sampled_logprobs_N` are the engine's, under the policy that sampled."""
        ...


@dataclass(frozen=True, slots=True)
class Cispo:
    """-sg(clip(r, 0, cap)) * A * log pi (MiniMax-M1, arXiv 2506.13585, equation 4, with one absolute cap)."""

    cap: float

    def describe(self) -> str:
        """The interval in force."""
        return f"cispo: importance ratio clipped to [0, {self.cap:g}], no gradient through it"

    def terms(self, logprobs_N: Tensor, sampled_logprobs_N: Tensor, advantages_N: Tensor) -> TokenTerms:
        """See Loss.terms."""
        ratio_N = torch.exp(logprobs_N.detach() - sampled_logprobs_N)
        weight_N = ratio_N.clamp(max=self.cap)
        return TokenTerms(-weight_N * advantages_N * logprobs_N, ratio_N > self.cap)
