"""Forward and backward over a forest, whole or in pieces, with memory bounded by the budget and the longest path.

Depth first: a piece's activations live only while something below it is computed. A loss whose terms are each token's
own is taken piece by piece; for any other, all tokens are scored first, the loss is called once, and its gradients are
carried back. It refuses to know rows, rewards and losses: the objective is a callable.
"""

# torch's autograd is partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.tree.forest import Forest
from services.trainer.tree.head import Targets, head_rows
from services.trainer.tree.head_pass import HeadPass, Objective, Scores
from services.trainer.tree.partition import Piece, partition, piece_forest
from services.trainer.tree.path_attention import PathStore, PieceAttention
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import hidden_states, on_trees, open_head, recomputing, whole_model

__all__ = ["Objective", "PassOptions", "PassResult", "Scores", "gradient_pass", "working_tokens"]

WORKING_ELEMENTS = 3 << 20
"""On a CPU, activations of more elements than this (12 MiB) leave its caches, and are slower the larger they are."""

WORKING_TOKENS = 2048
"""Fewer tokens than this at once cost more in calls than the caches give back."""


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
    longest = int(forest.depths_S.max(initial=-1)) + 1
    pieces = partition(forest, working_tokens(model, options.budget_tokens, longest))
    with on_trees(model), recomputing(model, options.recompute), open_head(model) as head:
        walk = _Walk(model, forest, pieces, HeadPass(head, head_rows(targets)))
        walk.keep_hidden = options.beside is not None
        loss = walk.local(objective) if options.local else walk.at_once(objective)
    beside_loss = 0.0 if options.beside is None else stand_beside(options.beside(walk.hidden_SE(), forest))
    return PassResult(walk.head.scores, loss, beside_loss, len(pieces))


def stand_beside(loss: Tensor) -> float:
    """Backward of a bystander's loss; its value."""
    if loss.requires_grad:
        torch.autograd.backward(loss)
    return float(loss.detach())


def working_tokens(model: Any, budget_tokens: int, longest: int) -> int:
    """Slots to compute at once: the budget, or less where a CPU's caches are served better by it.

    Half of that will do where no path is so long that it would be cut for it.
    """
    if next(model.parameters()).device.type != "cpu":
        return budget_tokens
    config = whole_model(model).config
    widest = getattr(config, "intermediate_size", 0) or config.hidden_size
    elements = WORKING_ELEMENTS if longest > WORKING_TOKENS else WORKING_ELEMENTS // 2
    return min(budget_tokens, max(WORKING_TOKENS, elements // widest))


class _Walk:
    """Once over the pieces, forwards and, for a gradient, backwards."""

    def __init__(self, model: Any, forest: Forest, pieces: tuple[Piece, ...], head: HeadPass) -> None:
        self.head = head
        self.keep_hidden = False
        self._model = model
        self._forest = forest
        self._pieces = pieces
        self._hidden: dict[int, Tensor] = {}

    def local(self, objective: Objective) -> float:
        """Backward of an objective that may be called with some targets at a time."""
        store, kept = self._store(), list[tuple[Tensor, Tensor]]()
        for piece in self._pieces:
            for _ in range(piece.release):
                _back(*kept.pop())
            if not self._needed(piece):
                continue
            hidden_SE = self._forward(piece, store)
            kept.append((hidden_SE, self.head.gradient(hidden_SE.detach(), piece.start, objective)))
            if not piece.spine:
                _back(*kept.pop())
        while kept:
            _back(*kept.pop())
        return self.head.loss

    def at_once(self, objective: Objective) -> float:
        """Backward of an objective that is called once, with all targets."""
        if len(self._pieces) == 1:
            hidden_SE = self._forward(self._pieces[0], self._store())
            gradient_SE, loss = self.head.at_once(hidden_SE.detach(), objective)
            _back(hidden_SE, gradient_SE)
            return loss
        with torch.no_grad():
            store = self._store()
            for piece in self._pieces:
                if self._needed(piece):
                    self.head.score(self._forward(piece, store), piece.start)
        loss, linear = self.head.carried(objective)
        self.local(linear)
        return loss

    def hidden_SE(self) -> Tensor:
        """Of all slots, detached."""
        return torch.cat([self._hidden[piece.start] for piece in self._pieces])

    def _needed(self, piece: Piece) -> bool:
        return piece.spine or self.keep_hidden or self.head.wants(piece.start, piece.end)

    def _store(self) -> PathStore:
        return PathStore(int(self._forest.depths_S.max(initial=-1)) + 1)

    def _forward(self, piece: Piece, store: PathStore) -> Tensor:
        part = piece_forest(self._forest, piece)
        hidden_SE = hidden_states(self._model, part, PieceAttention(piece, plan_attention(part), store))
        if self.keep_hidden:
            self._hidden[piece.start] = hidden_SE.detach()
        return hidden_SE


def _back(hidden_SE: Tensor, gradient_SE: Tensor) -> None:
    if hidden_SE.requires_grad:
        torch.autograd.backward(hidden_SE, gradient_SE)
