"""Losses of a token behind one small interface, a file each. They refuse to normalise: rows carry the weights."""

from services.trainer.domain.losses.choice import divides_by_spread, loss_of
from services.trainer.domain.losses.cispo import Cispo
from services.trainer.domain.losses.clipping import Interval
from services.trainer.domain.losses.grpo import Grpo
from services.trainer.domain.losses.gspo import Gspo
from services.trainer.domain.losses.interface import Loss, TokenBatch, TokenTerms
from services.trainer.domain.losses.ppo_clip import PpoClip
from services.trainer.domain.losses.truncated import TruncatedImportance

__all__ = [
    "Cispo",
    "Grpo",
    "Gspo",
    "Interval",
    "Loss",
    "PpoClip",
    "TokenBatch",
    "TokenTerms",
    "TruncatedImportance",
    "divides_by_spread",
    "loss_of",
]
