"""Ancestors-only attention on CPU: the plan's dense calls, merged by log-sum-exp, with the same calls backwards.

Exact, since softmax over a union of key sets follows from each set's output and log-sum-exp, and since the flash
backward needs only the merged output and log-sum-exp (Dao et al. 2022, "FlashAttention", algorithm 4: P = exp(S - L),
D = rowsum(dO * O)). It refuses dropout.
"""

# torch's dispatcher has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.tree.plan import AttentionPlan, Causal, Rectangle

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def tree_attention(query_HSD: Tensor, key_HSD: Tensor, value_HSD: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Attention output [H, S, D] of S slots; keys and values have as many heads as queries."""
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
        return (*backward_calls((grads[0].contiguous(), *ctx.saved_tensors), ctx.calls.plan, ctx.calls.scale), None)


def forward_calls(
    query: Tensor, key: Tensor, value: Tensor, plan: AttentionPlan, scale: float
) -> tuple[Tensor, Tensor]:
    """Output [H, S, D] and log-sum-exp [H, S] of the plan's calls; who attends to more keys merges those in after."""
    output = torch.empty_like(query)
    lse_HS = query.new_empty(query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32))
    for call in plan.causals:
        _causal_forward(call, (query, key, value), (output, lse_HS), scale)
    for call in plan.rectangles:
        _rectangle_forward(call, (query, key, value), (output, lse_HS), scale)
    return output, lse_HS


def backward_calls(saved: tuple[Tensor, ...], plan: AttentionPlan, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; `saved`: output's gradient, query, key, value, merged output, merged lse."""
    totals = tuple(torch.zeros_like(tensor) for tensor in saved[1:4])
    for call in plan.causals:
        index_BL = _slots(call, saved[0].device)
        parts = _backward(*(_stack(tensor, call, index_BL) for tensor in saved), 0.0, True, scale=scale)
        for total, part in zip(totals, parts, strict=True):
            _add(total, part, call, index_BL)
    for call in plan.rectangles:
        parts = _backward(*_rectangle_parts(call, saved), 0.0, False, scale=scale)
        totals[0][:, call.query_start : call.query_end] += parts[0][0]
        totals[1][:, call.key_start : call.key_end] += parts[1][0]
        totals[2][:, call.key_start : call.key_end] += parts[2][0]
    return totals[0], totals[1], totals[2]


def _slots(call: Causal, device: torch.device) -> Tensor | None:
    """Slot indices [B, L] of stacked paths; None for a single one, which is a slice."""
    if len(call.starts) == 1:
        return None
    return torch.tensor(call.starts, device=device)[:, None] + torch.arange(call.length, device=device)


def _stack(tensor: Tensor, call: Causal, index_BL: Tensor | None) -> Tensor:
    """[H, S, …] -> [B, H, L, …]."""
    if index_BL is None:
        return tensor[None, :, call.starts[0] : call.starts[0] + call.length]
    return tensor[:, index_BL].transpose(0, 1)


def _add(total: Tensor, part_BHLD: Tensor, call: Causal, index_BL: Tensor | None) -> None:
    if index_BL is None:
        total[:, call.starts[0] : call.starts[0] + call.length] += part_BHLD[0]
    else:
        total[:, index_BL] += part_BHLD.transpose(0, 1)


def _causal_forward(
    call: Causal, inputs: tuple[Tensor, Tensor, Tensor], results: tuple[Tensor, Tensor], scale: float
) -> None:
    index_BL = _slots(call, inputs[0].device)
    output_BHLD, lse_BHL = _forward(*(_stack(tensor, call, index_BL) for tensor in inputs), 0.0, True, scale=scale)
    if index_BL is None:
        here = slice(call.starts[0], call.starts[0] + call.length)
        results[0][:, here], results[1][:, here] = output_BHLD[0], lse_BHL[0]
    else:
        results[0][:, index_BL], results[1][:, index_BL] = output_BHLD.transpose(0, 1), lse_BHL.transpose(0, 1)


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
    merged_HQ = torch.logaddexp(before_lse_HQ, lse_HQ)
    keep, add = (torch.exp(part - merged_HQ)[..., None].to(query.dtype) for part in (before_lse_HQ, lse_HQ))
    results[0][:, queries] = before_HQD * keep + output_HQD * add
    results[1][:, queries] = merged_HQ


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
