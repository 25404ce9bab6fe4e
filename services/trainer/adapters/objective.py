"""The batch's objective: sum over trained tokens of weight * loss, with what it saw written into a tally.

It refuses a number that isn't finite, naming episode, turn and token, before any gradient exists.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.tally import Tally
from services.trainer.domain.losses import Loss, TokenBatch
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Of the rows' trained tokens, row after row: log-probabilities as sampled (with gradient), entropies in nats."""

    logprobs_N: Tensor
    entropies_N: Tensor


class Objective:
    """Call it with whole rows: every trained token of a row in the same call."""

    def __init__(self, loss: Loss, tally: Tally) -> None:
        self._loss = loss
        self._tally = tally

    def __call__(self, rows: Sequence[Row], scores: TokenScores) -> Tensor:
        """The rows' share of the batch's objective, a scalar with gradient. Raises StepRefused."""
        batch = token_batch(rows, scores.logprobs_N)
        refuse_unfinite(rows, scores.logprobs_N, "the trainer's log-probability")
        refuse_unfinite(rows, batch.sampled_N, "the engine's log-probability")
        refuse_unfinite(rows, batch.advantages_N, "advantage")
        refuse_unfinite(rows, scores.entropies_N, "entropy of the logits")
        terms = self._loss.terms(batch)
        refuse_unfinite(rows, terms.loss_N, "loss")
        self._tally.add(rows, scores.logprobs_N.detach(), scores.entropies_N.detach(), terms)
        weights_N = picked(rows, "weights_T").to(terms.loss_N)
        return (weights_N * terms.loss_N).sum()


def token_batch(rows: Sequence[Row], logprobs_N: Tensor) -> TokenBatch:
    """What a loss is given for these rows; numbers in the type and on the device of `logprobs_N`."""
    sequences_N = np.repeat(np.arange(len(rows)), [row.trained_tokens for row in rows])
    return TokenBatch(
        logprobs_N,
        picked(rows, "logprobs_T").to(logprobs_N),
        picked(rows, "advantages_T").to(logprobs_N),
        torch.from_numpy(sequences_N).to(logprobs_N.device),
    )


def picked(rows: Sequence[Row], name: str) -> Tensor:
    """One array of the rows, at the trained tokens only, row after row."""
    return torch.from_numpy(np.concatenate([getattr(row, name)[row.trained_T] for row in rows]))


def refuse_unfinite(rows: Sequence[Row], values_N: Tensor, what: str) -> None:
    """Raise StepRefused with episode, turn and token of the first value that isn't finite."""
    bad_N = ~torch.isfinite(values_N.detach())
    if not bool(bad_N.any()):
        return
    place = int(torch.nonzero(bad_N)[0])
    for row in rows:
        if place < row.trained_tokens:
            raise StepRefused(f"{where(row, place)}: {what} is not finite")
        place -= row.trained_tokens


def where(row: Row, trained_token: int) -> str:
    """Episode, turn and token of a row's n-th trained token, for people."""
    token = int(np.flatnonzero(row.trained_T)[trained_token])
    return f"episode {row.episode_id}: turn {row.turns_T[token]}: token {token} of its branch"
