"""Truncated importance weights around a clipped loss: what clipping leaves unbounded is cut to a cap.

A clipped surrogate bounds a ratio only on the side that its advantage pushes to; with a negative advantage a token that
the trainer finds much likelier than the engine did has any weight. Source: Ionides 2008, "Truncated importance
sampling", equation 2: w becomes min(w, cap). The surrogate's ratio already is the importance weight of engine and
trainer, so it is cut, never multiplied in again. It refuses CISPO, whose cap does the same.
"""

from dataclasses import dataclass

import torch

from services.trainer.domain.losses.cispo import Cispo
from services.trainer.domain.losses.interface import Loss, TokenBatch, TokenTerms


@dataclass(frozen=True, slots=True)
class TruncatedImportance:
    """The inner loss with importance weight min(w, cap) in place of w; no gradient goes through the cut."""

    inner: Loss
    cap: float

    def __post_init__(self) -> None:
        if isinstance(self.inner, Cispo | TruncatedImportance):
            raise ValueError("the importance weight would be truncated twice")

    @property
    def per_token(self) -> bool:
        """See Loss.per_token."""
        return self.inner.per_token

    def describe(self) -> str:
        """The interval in force."""
        return f"{self.inner.describe()}; importance weight cut to {self.cap:g}"

    def terms(self, batch: TokenBatch) -> TokenTerms:
        """See Loss.terms."""
        inner = self.inner.terms(batch)
        above_N = inner.importance_N > self.cap
        share_N = torch.where(above_N, self.cap / inner.importance_N, 1.0)
        return TokenTerms(inner.loss_N * share_N, inner.cut_N | above_N, inner.importance_N.clamp(max=self.cap))
