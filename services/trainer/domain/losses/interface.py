"""What a loss is given and what it answers. It refuses to know of rows, ranks and denominators."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Trained tokens of whole sequences. `logprobs_N` carries the gradient.

    `sampled_N`: the engine's log-probabilities, under the policy that sampled. `sequences_N`: int64, which sequence
    (row) a token belongs to, counted from 0 without gaps.
    """

    logprobs_N: Tensor
    sampled_N: Tensor
    advantages_N: Tensor
    sequences_N: Tensor


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """Per trained token: the loss, with gradient; whether its ratio was cut (bool); the importance weight in force."""

    loss_N: Tensor
    cut_N: Tensor
    importance_N: Tensor


class Loss(Protocol):
    """A policy-gradient loss over trained tokens."""

    @property
    def per_token(self) -> bool:
        """Whether no token's loss depends on another token: `terms` may then be asked for some tokens at a time."""
        ...

    def describe(self) -> str:
        """The interval in force, for people."""
        ...

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """Every token's loss; unless `per_token`, all trained tokens of a sequence must be in the same call."""
        ...
