"""Ancestors-only attention on CPU: the plan's dense calls, merged by log-sum-exp, with the same calls backwards.

Exact, since softmax over a union of key sets follows from each set's output and log-sum-exp, and since the flash
backward needs only the merged output and log-sum-exp (Dao et al. 2022, "FlashAttention", algorithm 4: P = exp(S - L),
D = rowsum(dO * O)). It refuses dropout. On a GPU it hands over to flex.py.
"""

# torch's dispatcher has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.tree.flex import flex_tree_attention
from services.trainer.tree.plan import AttentionPlan, Block, Causal, Rectangle
from services.trainer.tree.tile_attention import tiles_backward, tiles_forward
from services.trainer.tree.tiles import Tiles

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def tree_attention(query_HSD: Tensor, key_HSD: Tensor, value_HSD: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Attention output [H, S, D] of S slots for query [H, S, D], key and value [K, S, D], K a divisor of H."""
    if query_HSD.device.type != "cpu":
        return flex_tree_attention(query_HSD, key_HSD, value_HSD, plan, scale)
    if plan.tiles is not None:
        return _Tiles.apply(query_HSD, key_HSD, value_HSD, _Tiling(plan.tiles, scale))  # pyright: ignore
    return _TreeAttention.apply(query_HSD, key_HSD, value_HSD, _Calls(plan, scale))  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, slots=True)
class _Calls:
    plan: AttentionPlan
    scale: float


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, calls: _Calls) -> Tensor:
        output, lse_HS = forward_calls(query, key, value, calls.plan, calls.scale)
        ctx.save_for_backward(query, key, value, output, lse_HS)
        ctx.calls = calls
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        return (*backward_calls((grad, *ctx.saved_tensors), ctx.calls.plan, ctx.calls.scale), None)


@dataclass(frozen=True, slots=True)
class _Tiling:
    tiles: Tiles
    scale: float


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, calls: _Tiling) -> Tensor:
        output, kept = tiles_forward(query, key, value, calls.tiles, calls.scale)
        ctx.save_for_backward(query, key, value, *kept)
        ctx.calls = calls
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *kept = ctx.saved_tensors
        return (*tiles_backward(grads[0], (query, key, value), kept, ctx.calls.tiles, ctx.calls.scale), None)


def forward_calls(
    query: Tensor, key: Tensor, value: Tensor, plan: AttentionPlan, scale: float
) -> tuple[Tensor, Tensor]:
    """Output [H, S, D] and log-sum-exp [H, S] of the plan's calls; who attends to more keys merges those in after."""
    output = torch.empty_like(query)
    lse_HS = query.new_empty(query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32))
    for call in plan.causals:
        _causal_forward(call, (query, key, value), (output, lse_HS), scale)
    for block in plan.blocks:
        here = slice(block.start, block.end)
        mask = _block_mask(block, plan, query.dtype)
        inputs = (tensor[None, :, here] for tensor in (query, key, value))
        parts = _forward(*inputs, 0.0, False, attn_mask=mask, scale=scale)
        output[:, here], lse_HS[:, here] = parts[0][0], parts[1][0]
    for call in plan.rectangles:
        _rectangle_forward(call, (query, key, value), (output, lse_HS), scale)
    return output, lse_HS


def backward_calls(saved: tuple[Tensor, ...], plan: AttentionPlan, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; `saved`: output's gradient, query, key, value, merged output, merged lse.

    The output's gradient is used up: it is written to.
    """
    query, key, value = (torch.empty_like(tensor) for tensor in saved[1:4])
    roots_R = torch.from_numpy(plan.roots_R)
    of_roots_KRD = _taken(saved[0], roots_R, len(key))
    # Every slot is on one heavy path or in one block, so those write what rectangles then add to.
    for call in plan.causals:
        parts = _backward(*(_stack(tensor, call) for tensor in saved), 0.0, True, scale=scale)
        for total, part in zip((query, key, value), parts, strict=True):
            _put(total, part, call)
    for block in plan.blocks:
        here = slice(block.start, block.end)
        mask = _block_mask(block, plan, query.dtype)
        parts = _backward(*(tensor[None, :, here] for tensor in saved), 0.0, False, attn_mask=mask, scale=scale)
        for total, part in zip((query, key, value), parts, strict=True):
            total[:, here] = part[0]
    for call in plan.rectangles:
        parts = _backward(*_rectangle_parts(call, saved), 0.0, False, scale=scale)
        query[:, call.query_start : call.query_end] += parts[0][0]
        key[:, call.key_start : call.key_end] += parts[1][0]
        value[:, call.key_start : call.key_end] += parts[2][0]
    value.index_add_(1, roots_R, of_roots_KRD)
    return query, key, value


def _taken(grad_HSD: Tensor, roots_R: Tensor, key_heads: int) -> Tensor:
    """What a root's output hands to its value, [K, R, D]: a root sees itself alone, so its scores have no gradient.

    The kernels would find rounding instead of nothing there, which is much where all else is small.
    """
    own_HRD = grad_HSD.index_select(1, roots_R)
    grad_HSD.index_fill_(1, roots_R, 0.0)
    return own_HRD.unflatten(0, (key_heads, -1)).sum(1)


def _block_mask(block: Block, plan: AttentionPlan, dtype: torch.dtype) -> Tensor:
    """Added to the scores: 0 where a query sees a key, else -inf. [1, 1, L, L]."""
    known: Tensor | None = plan.masks.get((block, dtype))
    if known is None:
        known = plan.masks[block, dtype] = _made_mask(block, plan, dtype)
    return known


def _made_mask(block: Block, plan: AttentionPlan, dtype: torch.dtype) -> Tensor:
    slots_L = torch.arange(block.start, block.end)
    ends_L = torch.from_numpy(plan.ends_S[block.start : block.end])
    hidden_LL = (slots_L[None] > slots_L[:, None]) | (slots_L[:, None] >= ends_L[None])
    return torch.zeros(hidden_LL.shape, dtype=dtype).masked_fill_(hidden_LL, float("-inf"))[None, None]


def _stack(tensor: Tensor, call: Causal) -> Tensor:
    """[H, S, …] -> [B, H, L, …], a view where the paths start at even distances."""
    if call.stride is None:
        return tensor[:, _slots(call, tensor.device)].transpose(0, 1)
    heads, slots, *rest = tensor.stride()
    shape = (len(call.starts), tensor.shape[0], call.length, *tensor.shape[2:])
    strides = (call.stride * slots, heads, slots, *rest)
    return tensor.as_strided(shape, strides, tensor.storage_offset() + call.starts[0] * slots)


def _put(total: Tensor, part: Tensor, call: Causal) -> None:
    """Write [B, H, L, …] to its slots of [H, S, …]."""
    if call.stride is None:
        total[:, _slots(call, total.device)] = part.transpose(0, 1)
    else:
        _stack(total, call).copy_(part)


def _slots(call: Causal, device: torch.device) -> Tensor:
    """Slot indices [B, L]."""
    return torch.tensor(call.starts, device=device)[:, None] + torch.arange(call.length, device=device)


def _causal_forward(
    call: Causal, inputs: tuple[Tensor, Tensor, Tensor], results: tuple[Tensor, Tensor], scale: float
) -> None:
    parts = _forward(*(_stack(tensor, call) for tensor in inputs), 0.0, True, scale=scale)
    for result, part in zip(results, parts, strict=True):
        _put(result, part, call)


def _rectangle_forward(
    call: Rectangle, inputs: tuple[Tensor, Tensor, Tensor], results: tuple[Tensor, Tensor], scale: float
) -> None:
    queries, keys = slice(call.query_start, call.query_end), slice(call.key_start, call.key_end)
    query, key, value = inputs
    output_HQD, lse_HQ = (
        part[0]
        for part in _forward(query[None, :, queries], key[None, :, keys], value[None, :, keys], 0.0, scale=scale)
    )
    before_HQD, before_lse_HQ = results[0][:, queries], results[1][:, queries]
    # merged = before + (new - before) * share, share = exp(new lse) / (exp(old lse) + exp(new lse))
    share_HQ1 = torch.sigmoid(lse_HQ - before_lse_HQ)[..., None].to(query.dtype)
    before_HQD.lerp_(output_HQD, share_HQ1)
    torch.logaddexp(before_lse_HQ, lse_HQ, out=before_lse_HQ)


def _rectangle_parts(call: Rectangle, saved: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    grad, query, key, value, output, lse_HS = saved
    queries, keys = slice(call.query_start, call.query_end), slice(call.key_start, call.key_end)
    return (
        grad[None, :, queries],
        query[None, :, queries],
        key[None, :, keys],
        value[None, :, keys],
        output[None, :, queries],
        lse_HS[None, :, queries],
    )
