"""Losses of a token behind one small interface, a file each. They refuse to normalise: rows carry the weights."""

from services.trainer.domain.losses.cispo import Cispo
from services.trainer.domain.losses.interface import Loss, TokenBatch, TokenTerms

__all__ = ["Cispo", "Loss", "TokenBatch", "TokenTerms"]
