"""Attention of a piece of a cut forest: over itself, and over the keys and values of the path above it.

Keys and values of the path live in one store a layer, and so do their gradients: what hangs below adds to them in its
backward pass, and a spine piece takes them into its own. Exact, since both are plain sums. It refuses to know an order:
pieces come as partition.py lays down, backwards in reverse.
"""

# torch's dispatcher has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.tree.attention import backward_calls, forward_calls, tree_attention
from services.trainer.tree.partition import Hang, Piece
from services.trainer.tree.plan import AttentionPlan
from services.trainer.tree.tile_attention import tiles_backward, tiles_forward
from services.trainer.tree.tiles import Tiles

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class PathStore:
    """Keys, values and their gradients, by layer, of the path that is being computed; `longest` slots at most."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._gradients: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, depth: int, key_KSD: Tensor, value_KSD: Tensor) -> None:
        """Put a spine piece's keys and values in their place. The same may be written twice."""
        if layer not in self._layers:
            self._layers[layer] = (self._room(key_KSD), self._room(value_KSD))
        for room, part in zip(self._layers[layer], (key_KSD, value_KSD), strict=True):
            room[:, depth : depth + part.shape[1]] = part.detach()

    def read(self, layer: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of depths [start, end)."""
        key, value = self._layers[layer]
        return key[:, start:end], value[:, start:end]

    def add(self, layer: int, key_gradient: Tensor, value_gradient: Tensor) -> None:
        """Add to the gradients of the first depths."""
        if layer not in self._gradients:
            key, value = self._layers[layer]
            self._gradients[layer] = (torch.zeros_like(key), torch.zeros_like(value))
        for room, part in zip(self._gradients[layer], (key_gradient, value_gradient), strict=True):
            room[:, : part.shape[1]] += part

    def hand_over(self, layer: int, start: int, key_gradient: Tensor, value_gradient: Tensor) -> None:
        """Add the gradients of depths from `start` on to those given, and forget them."""
        for room, total in zip(self._gradients.get(layer, ()), (key_gradient, value_gradient), strict=False):
            here = room[:, start : start + total.shape[1]]
            total += here
            here.zero_()

    def _room(self, like: Tensor) -> Tensor:
        return like.new_empty(like.shape[0], self._longest, like.shape[2])


@dataclass(frozen=True, slots=True)
class PieceAttention:
    """What the layers of a model call for one piece."""

    piece: Piece
    plan: AttentionPlan
    store: PathStore

    def attend(self, layer: int, inputs: tuple[Tensor, Tensor, Tensor], scale: float) -> Tensor:
        """Output [H, S, D] for query [H, S, D], key and value [K, S, D], K a divisor of H."""
        if inputs[0].device.type != "cpu":
            if self.piece.spine or any(hang.depth for hang in self.piece.hangs):
                raise ValueError(
                    "budget_tokens: on a GPU a forest is computed whole; allowed the forest's slots or more"
                )
            return tree_attention(*inputs, self.plan, scale)
        if self.plan.tiles is not None:
            return _PathTiles.apply(*inputs, _TileCall(self, self.plan.tiles, layer, scale))  # pyright: ignore
        return _PathAttention.apply(*inputs, _Call(self, layer, scale))  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, slots=True)
class _Call:
    of: PieceAttention
    layer: int
    scale: float


class _PathAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, call: _Call) -> Tensor:
        piece, store = call.of.piece, call.of.store
        results = forward_calls(query, key, value, call.of.plan, call.scale)
        for hang in piece.hangs:
            if hang.depth:
                _look_back(query, hang, store.read(call.layer, 0, hang.depth), results, call.scale)
        ctx.call = call
        if piece.spine:
            store.write(call.layer, piece.depth, key, value)
            ctx.save_for_backward(query, *results)
        else:
            ctx.save_for_backward(query, *results, key, value)
        return results[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        piece, store = call.of.piece, call.of.store
        query, output, lse_HS, *own = ctx.saved_tensors
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        key, value = own or store.read(call.layer, piece.depth, piece.depth + piece.slots)
        totals = backward_calls((grad, query, key, value, output, lse_HS), call.of.plan, call.scale)
        for hang in piece.hangs:
            if hang.depth:
                here = slice(hang.start, hang.end)
                path = store.read(call.layer, 0, hang.depth)
                parts = _backward(
                    grad[None, :, here],
                    query[None, :, here],
                    *(part[None] for part in path),
                    output[None, :, here],
                    lse_HS[None, :, here],
                    0.0,
                    False,
                    scale=call.scale,
                )
                totals[0][:, here] += parts[0][0]
                store.add(call.layer, parts[1][0], parts[2][0])
        if piece.spine:
            store.hand_over(call.layer, piece.depth, totals[1], totals[2])
        return (*totals, None)


@dataclass(frozen=True, slots=True)
class _TileCall:
    of: PieceAttention
    tiles: Tiles
    layer: int
    scale: float

    def below_path(self, own: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The piece's keys and values, with those of the path above before them."""
        if not self.tiles.above:
            return own[0], own[1]
        path = self.of.store.read(self.layer, 0, self.tiles.above)
        # Slots first, as the library lays them out.
        key, value = (
            torch.cat([part.transpose(0, 1), mine.transpose(0, 1)]).transpose(0, 1)
            for part, mine in zip(path, own, strict=True)
        )
        return key, value


class _PathTiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, call: _TileCall) -> Tensor:
        piece, store = call.of.piece, call.of.store
        output, kept = tiles_forward(query, *call.below_path((key, value)), call.tiles, call.scale)
        if piece.spine:
            store.write(call.layer, piece.depth, key, value)
        ctx.call = call
        ctx.save_for_backward(query, *(() if piece.spine else (key, value)), *kept)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call: _TileCall = ctx.call
        piece, store, above = call.of.piece, call.of.store, call.tiles.above
        query, *saved = ctx.saved_tensors
        if piece.spine:
            own = store.read(call.layer, piece.depth, piece.depth + piece.slots)
        else:
            own, saved = saved[:2], saved[2:]
        inputs = (query, *call.below_path(own))
        of_query, *of_rest = tiles_backward(grads[0], inputs, saved, call.tiles, call.scale)
        if above:
            store.add(call.layer, of_rest[0][:, :above], of_rest[1][:, :above])
        of_key, of_value = (total[:, above:] for total in of_rest)
        if piece.spine:
            store.hand_over(call.layer, piece.depth, of_key, of_value)
        return of_query, of_key, of_value, None


def _look_back(
    query: Tensor, hang: Hang, path: tuple[Tensor, Tensor], results: tuple[Tensor, Tensor], scale: float
) -> None:
    """Merge what a hang sees of the path into its own output and log-sum-exp."""
    here = slice(hang.start, hang.end)
    output_HQD, lse_HQ = (
        part[0] for part in _forward(query[None, :, here], *(part[None] for part in path), 0.0, False, scale=scale)
    )
    before_HQ = results[1][:, here]
    merged_HQ = torch.logaddexp(before_HQ, lse_HQ)
    keep, add = (torch.exp(part - merged_HQ)[..., None].to(query.dtype) for part in (before_HQ, lse_HQ))
    results[0][:, here] = results[0][:, here] * keep + output_HQD * add
    results[1][:, here] = merged_HQ
