"""Objective and gradient at the head: hidden states in, their gradient out, whatever made them.

An objective is asked chunk by chunk where it may be; otherwise all tokens are scored first, it is called once, and its
slopes are carried back. It refuses to know layers.
"""

# torch's autograd is partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from services.trainer.tree.forest import Ints
from services.trainer.tree.head import Chunk, Head, HeadRows, chunks


@dataclass(frozen=True, slots=True)
class Scores:
    """Of some targets: log-probabilities as sampled, with gradient, and entropies of the raw distribution in nats."""

    logprobs_N: Tensor
    entropies_N: Tensor


class Objective(Protocol):
    """A loss over targets."""

    def __call__(self, scores: Scores, targets_N: Ints) -> Tensor:
        """The share of the loss, a scalar with gradient, of the targets named; each target comes exactly once."""
        ...


class HeadPass:
    """Scores and loss of the targets of `rows`, gathered over as many calls as their hidden states come in."""

    def __init__(self, head: Head, rows: HeadRows) -> None:
        self._head = head
        self._rows = rows
        self._sums: list[Tensor] = []
        self._logprobs_N = head.weight_VE.new_zeros(len(rows.order_N)).detach()
        self._entropies_N = torch.zeros_like(self._logprobs_N)

    @property
    def scores(self) -> Scores:
        """Of all targets that have come, detached."""
        return Scores(self._logprobs_N, self._entropies_N)

    @property
    def loss(self) -> float:
        """What the objectives of `gradient` answered, in all."""
        return float(torch.stack(self._sums).sum()) if self._sums else 0.0

    def wants(self, start: int, end: int) -> bool:
        """Whether any target is predicted by hidden states [start, end)."""
        first, last = self._rows.within(start, end)
        return last > first

    def score(self, hidden_SE: Tensor, start: int) -> None:
        """Score the targets of hidden states [start, start + S)."""
        with torch.no_grad():
            for chunk, _ in chunks(self._head, hidden_SE.detach(), start, self._rows):
                self._note(chunk)

    def gradient(self, hidden_SE: Tensor, start: int, objective: Objective) -> Tensor:
        """The hidden states' gradient from their own targets; the head's parameters take theirs on the way."""
        gradient_SE = torch.zeros_like(hidden_SE)
        for chunk, leaf_RE in chunks(self._head, hidden_SE.detach(), start, self._rows):
            self._note(chunk)
            loss = objective(Scores(chunk.logprobs_C, chunk.entropies_C), chunk.targets_C)
            self._sums.append(loss.detach())
            if not loss.requires_grad:
                continue
            torch.autograd.backward(loss)
            if leaf_RE.grad is not None:
                slots_R = torch.from_numpy(self._rows.slots_R[chunk.first : chunk.last] - start)
                gradient_SE.index_add_(0, slots_R.to(hidden_SE.device), leaf_RE.grad)
        return gradient_SE

    def carried(self, objective: Objective) -> tuple[float, Objective]:
        """The objective's value over all targets, called once, and the linear objective that has its gradient here."""
        leaf_N = self._logprobs_N.clone().requires_grad_()
        loss = objective(Scores(leaf_N, self._entropies_N), np.arange(len(leaf_N)))
        if loss.requires_grad:
            torch.autograd.backward(loss)
        slopes_N = leaf_N.grad if leaf_N.grad is not None else torch.zeros_like(leaf_N)

        def linear(scores: Scores, targets_N: Ints) -> Tensor:
            return (scores.logprobs_N * slopes_N[torch.from_numpy(targets_N).to(slopes_N.device)]).sum()

        return float(loss.detach()), linear

    def at_once(self, hidden_SE: Tensor, objective: Objective) -> tuple[Tensor, float]:
        """Gradient and loss where these are all hidden states there are, and the objective is called once."""
        self.score(hidden_SE, 0)
        loss, linear = self.carried(objective)
        return self.gradient(hidden_SE, 0, linear), loss

    def _note(self, chunk: Chunk) -> None:
        where_C = torch.from_numpy(chunk.targets_C).to(self._logprobs_N.device)
        self._logprobs_N[where_C] = chunk.logprobs_C.detach()
        self._entropies_N[where_C] = chunk.entropies_C
