"""Forward and backward over a forest, whole or in pieces, with memory bounded by the budget and the longest path.

Depth first: a piece's activations live only while something below it is computed. A loss whose terms are each token's
own is taken piece by piece; for any other, all tokens are scored first, the loss is called once, and its gradients are
carried back. It refuses to know rows, rewards and losses: the objective is a callable.
"""

# torch's autograd is partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from services.trainer.tree.forest import Forest, Ints
from services.trainer.tree.head import Head, HeadRows, Targets, chunks, head_rows
from services.trainer.tree.partition import Piece, partition, piece_forest
from services.trainer.tree.path_attention import PathStore, PieceAttention
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import hidden_states, on_trees, open_head, recomputing


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


@dataclass(frozen=True, slots=True)
class PassOptions:
    """`budget_tokens`: slots computed at once, at most. `recompute`: activations anew in backward, layer by layer.

    `local`: no term of the objective depends on other targets, so that it may be called with some at a time.
    `beside`: called with the detached last hidden states [S, E] of all slots and the forest, answers a loss whose
    gradient is its own affair.
    """

    budget_tokens: int
    recompute: bool = False
    local: bool = False
    beside: Callable[[Tensor, Forest], Tensor] | None = None


@dataclass(frozen=True, slots=True)
class PassResult:
    """Detached scores of all targets; the values of objective and bystander; pieces that the forest was cut into."""

    scores: Scores
    loss: float
    beside_loss: float
    pieces: int


def gradient_pass(
    model: Any, forest: Forest, targets: Targets, objective: Objective, options: PassOptions
) -> PassResult:
    """Add the objective's gradient to the model's parameters. The targets' predecessors are slots of the forest."""
    pieces = partition(forest, options.budget_tokens)
    with on_trees(model), recomputing(model, options.recompute), open_head(model) as head:
        walk = _Walk(model, forest, pieces, head, head_rows(targets))
        walk.keep_hidden = options.beside is not None
        loss = walk.local(objective) if options.local else walk.at_once(objective)
    beside_loss = 0.0
    if options.beside is not None:
        beside = options.beside(walk.hidden_SE(), forest)
        beside_loss = float(beside.detach())
        if beside.requires_grad:
            torch.autograd.backward(beside)
    return PassResult(walk.scores(), loss, beside_loss, len(pieces))


class _Walk:
    """Once over the pieces, forwards and, for a gradient, backwards."""

    def __init__(self, model: Any, forest: Forest, pieces: tuple[Piece, ...], head: Head, rows: HeadRows) -> None:
        self._model = model
        self._forest = forest
        self._pieces = pieces
        self._rows = rows
        self._head = head
        self._hidden: dict[int, Tensor] = {}
        self._sums: list[Tensor] = []
        parameter = next(model.parameters())
        wide = torch.promote_types(parameter.dtype, torch.float32)
        self._logprobs_N = torch.zeros(len(rows.order_N), dtype=wide, device=parameter.device)
        self._entropies_N = torch.zeros_like(self._logprobs_N)
        self.keep_hidden = False

    def local(self, objective: Objective) -> float:
        """Backward of an objective that may be called with some targets at a time."""
        store, kept = self._store(), list[tuple[Tensor, Tensor]]()
        for piece in self._pieces:
            for _ in range(piece.release):
                self._back(*kept.pop())
            if not self._needed(piece):
                continue
            hidden_SE = self._forward(piece, store)
            kept.append((hidden_SE, self._head_gradient(hidden_SE.detach(), piece, objective)))
            if not piece.spine:
                self._back(*kept.pop())
        while kept:
            self._back(*kept.pop())
        return float(torch.stack(self._sums).sum()) if self._sums else 0.0

    def at_once(self, objective: Objective) -> float:
        """Backward of an objective that is called once, with all targets."""
        if len(self._pieces) > 1:
            with torch.no_grad():
                store = self._store()
                for piece in self._pieces:
                    if self._needed(piece):
                        self._score(self._forward(piece, store), piece)
            loss, carried = self._carried(objective)
            self.local(carried)
            return loss
        hidden_SE = self._forward(self._pieces[0], self._store())
        with torch.no_grad():
            self._score(hidden_SE.detach(), self._pieces[0])
        loss, carried = self._carried(objective)
        self._back(hidden_SE, self._head_gradient(hidden_SE.detach(), self._pieces[0], carried))
        return loss

    def scores(self) -> Scores:
        """Of all targets, detached."""
        return Scores(self._logprobs_N, self._entropies_N)

    def hidden_SE(self) -> Tensor:
        """Of all slots, detached."""
        return torch.cat([self._hidden[piece.start] for piece in self._pieces])

    def _needed(self, piece: Piece) -> bool:
        first, last = self._rows.within(piece.start, piece.end)
        return piece.spine or last > first or self.keep_hidden

    def _store(self) -> PathStore:
        return PathStore(int(self._forest.depths_S.max(initial=-1)) + 1)

    def _forward(self, piece: Piece, store: PathStore) -> Tensor:
        part = piece_forest(self._forest, piece)
        hidden_SE = hidden_states(self._model, part, PieceAttention(piece, plan_attention(part), store))
        if self.keep_hidden:
            self._hidden[piece.start] = hidden_SE.detach()
        return hidden_SE

    def _back(self, hidden_SE: Tensor, gradient_SE: Tensor) -> None:
        if hidden_SE.requires_grad:
            torch.autograd.backward(hidden_SE, gradient_SE)

    def _score(self, hidden_SE: Tensor, piece: Piece) -> None:
        for chunk, _ in chunks(self._head, hidden_SE, piece.start, self._rows):
            self._note(chunk.targets_C, chunk.logprobs_C, chunk.entropies_C)

    def _head_gradient(self, hidden_SE: Tensor, piece: Piece, objective: Objective) -> Tensor:
        """The gradient of a piece's hidden states from its own targets; the head takes its own on the way."""
        gradient_SE = torch.zeros_like(hidden_SE)
        for chunk, leaf_RE in chunks(self._head, hidden_SE, piece.start, self._rows):
            self._note(chunk.targets_C, chunk.logprobs_C.detach(), chunk.entropies_C)
            loss = objective(Scores(chunk.logprobs_C, chunk.entropies_C), chunk.targets_C)
            self._sums.append(loss.detach())
            if not loss.requires_grad:
                continue
            torch.autograd.backward(loss)
            if leaf_RE.grad is not None:
                slots_R = torch.from_numpy(self._rows.slots_R[chunk.first : chunk.last] - piece.start)
                gradient_SE.index_add_(0, slots_R.to(hidden_SE.device), leaf_RE.grad)
        return gradient_SE

    def _note(self, targets_C: Ints, logprobs_C: Tensor, entropies_C: Tensor) -> None:
        where_C = torch.from_numpy(targets_C).to(self._logprobs_N.device)
        self._logprobs_N[where_C] = logprobs_C
        self._entropies_N[where_C] = entropies_C

    def _carried(self, objective: Objective) -> tuple[float, Objective]:
        """The objective's value over all targets, and the linear objective that has its gradient here."""
        leaf_N = self._logprobs_N.clone().requires_grad_()
        everything = torch.arange(len(leaf_N)).numpy()
        loss = objective(Scores(leaf_N, self._entropies_N), everything)
        if loss.requires_grad:
            torch.autograd.backward(loss)
        slopes_N = leaf_N.grad if leaf_N.grad is not None else torch.zeros_like(leaf_N)

        def carried(scores: Scores, targets_N: Ints) -> Tensor:
            where_N = torch.from_numpy(targets_N).to(slopes_N.device)
            return (scores.logprobs_N * slopes_N[where_N]).sum()

        return float(loss.detach()), carried
