"""Attention over a forest's tiles on CPU: a few matrix products a group, with their own backward.

The keys of a tile are all that its slots see, so there is nothing to merge: one softmax, and the gradients of what was
gathered are added where it came from. A root's probability is 1, so its scores have no gradient, not even rounding.
It refuses nothing; numbers narrower than float32 are widened on the way.
"""

# torch's dispatcher has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.tree.tiles import TILE_SLOTS, Group, Tiles, gathered


@dataclass(frozen=True, slots=True)
class _Gather:
    """What the layers of a model have in common. slots_N: of all tiles, padded [B * L]; places_N: keys [B * K];
    mask_B1L1K: 0 or -inf."""

    group: Group
    slots_N: Tensor
    places_N: Tensor
    mask_B1L1K: Tensor


def tiles_forward(
    query: Tensor, key: Tensor, value: Tensor, tiles: Tiles, scale: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output [H, S, D] for query [H, S, D], key and value [K, A, D]: those of the path above, then the slots' own.

    Also the probabilities of each group, which the backward wants.
    """
    query_SHD, key_AKD, value_AKD = (tensor.transpose(0, 1) for tensor in (query, key, value))
    output_SHD = torch.empty_like(query_SHD, memory_format=torch.contiguous_format)
    kept: list[Tensor] = []
    for gather in _gathers(tiles, _wide(query.dtype)):
        scores = torch.bmm(_rows(query_SHD, gather, len(key)).mul_(scale), _keys(key_AKD, gather).transpose(1, 2))
        scores.view(len(gather.group.firsts), len(key), TILE_SLOTS, -1, gather.group.keys).add_(gather.mask_B1L1K)
        kept.append(torch.softmax(scores, -1))
        _put(output_SHD, torch.bmm(kept[-1], _keys(value_AKD, gather)), gather)
    return output_SHD.transpose(0, 1), tuple(kept)


def tiles_backward(
    grad: Tensor, inputs: tuple[Tensor, Tensor, Tensor], kept: Sequence[Tensor], tiles: Tiles, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the forward's query, key and value for that of its output [H, S, D], and what it kept."""
    grad_SHD, query_SHD, key_AKD, value_AKD = (tensor.transpose(0, 1) for tensor in (grad, *inputs))
    wide, heads = _wide(grad.dtype), key_AKD.shape[1]
    of_query = torch.empty_like(query_SHD, memory_format=torch.contiguous_format)
    of_key, of_value = (torch.zeros(tensor.shape, dtype=wide) for tensor in (key_AKD, value_AKD))
    for gather, shares in zip(_gathers(tiles, wide), kept, strict=True):
        rows = _rows(grad_SHD, gather, heads)
        rows.view(len(gather.group.firsts), heads, TILE_SLOTS, -1)[-1, :, _last(gather.group) :] = 0
        _add(of_value, torch.bmm(shares.transpose(1, 2), rows), gather)
        of_shares = torch.bmm(rows, _keys(value_AKD, gather).transpose(1, 2))
        of_scores = torch.ops.aten._softmax_backward_data(of_shares, shares, -1, wide)
        _put(of_query, torch.bmm(of_scores, _keys(key_AKD, gather)).mul_(scale), gather)
        _add(of_key, torch.bmm(of_scores.transpose(1, 2), _rows(query_SHD, gather, heads).mul_(scale)), gather)
    of_query, of_key, of_value = (part.transpose(0, 1).to(grad.dtype) for part in (of_query, of_key, of_value))
    return of_query, of_key, of_value


def _gathers(tiles: Tiles, dtype: torch.dtype) -> tuple[_Gather, ...]:
    known: tuple[_Gather, ...] | None = tiles.gathers.get(dtype)
    if known is None:
        known = tiles.gathers[dtype] = tuple(_gather(tiles, group, dtype) for group in tiles.groups)
    return known


def _gather(tiles: Tiles, group: Group, dtype: torch.dtype) -> _Gather:
    slots_BL, keys_BK, hidden_BLK = gathered(tiles, group)
    hidden = torch.from_numpy(hidden_BLK)[:, None, :, None]
    mask_B1L1K = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return _Gather(group, torch.from_numpy(slots_BL.reshape(-1)), torch.from_numpy(keys_BK.reshape(-1)), mask_B1L1K)


def _last(group: Group) -> int:
    """Slots of a group's last tile."""
    return group.slots - (len(group.firsts) - 1) * TILE_SLOTS


def _rows(tensor_SHD: Tensor, gather: _Gather, key_heads: int) -> Tensor:
    """A copy of a group's slots, [S, H, D] -> [B * K, L * H / K, D]; what pads the last tile is its last slot again."""
    tiles, width = len(gather.group.firsts), tensor_SHD.shape[2]
    rows = tensor_SHD.index_select(0, gather.slots_N).to(gather.mask_B1L1K.dtype)
    return rows.view(tiles, TILE_SLOTS, key_heads, -1).transpose(1, 2).reshape(tiles * key_heads, -1, width)


def _keys(tensor_AKD: Tensor, gather: _Gather) -> Tensor:
    """A group's keys or values, [A, K, D] -> [B * K, N, D]."""
    rows = tensor_AKD.index_select(0, gather.places_N).to(gather.mask_B1L1K.dtype)
    return rows.unflatten(0, (-1, gather.group.keys)).transpose(1, 2).flatten(0, 1)


def _put(total_SHD: Tensor, rows: Tensor, gather: _Gather) -> None:
    """Write what `_rows` would read."""
    _, heads, width = total_SHD.shape
    tiles, slots = len(gather.group.firsts), gather.group.slots
    key_heads = len(rows) // tiles
    rows_NHD = rows.view(tiles, key_heads, TILE_SLOTS, -1).transpose(1, 2).reshape(-1, heads, width)
    total_SHD.index_copy_(0, gather.slots_N[:slots], rows_NHD[:slots].to(total_SHD.dtype))


def _add(total_AKD: Tensor, rows: Tensor, gather: _Gather) -> None:
    """Add gradients of gathered keys [B * K, N, D] where they came from."""
    rows_NKD = rows.unflatten(0, (-1, total_AKD.shape[1])).transpose(1, 2).flatten(0, 1)
    total_AKD.index_add_(0, gather.places_N, rows_NKD)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
