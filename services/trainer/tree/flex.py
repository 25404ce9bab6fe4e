"""Ancestors-only attention on a GPU: FlexAttention with a block mask that is read off the forest, block by block.

In depth-first order the slots below a slot, and itself, are one run of slots, so who sees whom is two comparisons, and
whether a block of queries sees a block of keys follows from each block's ends without looking at a single pair. It
refuses the CPU, where FlexAttention has no backward: attention.py serves there.
"""

# torch's compiler has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from services.trainer.tree.forest import Ints
from services.trainer.tree.plan import AttentionPlan

BLOCK = 128
"""Slots a block: FlexAttention's own default, and the least that its kernels take on every GPU."""

MASKS_KEPT = 2

Blocks = npt.NDArray[np.bool_]


def flex_tree_attention(
    query_HSD: Tensor, key_KSD: Tensor, value_KSD: Tensor, plan: AttentionPlan, scale: float
) -> Tensor:
    """Attention output [H, S, D] of S slots, K a divisor of H; compiled once for each shape of heads."""
    attend = _compiled()
    mask = block_mask(plan, str(query_HSD.device))
    grouped = query_HSD.shape[0] != key_KSD.shape[0]
    inputs = (query_HSD[None], key_KSD[None], value_KSD[None])
    return attend(*inputs, block_mask=mask, scale=scale, enable_gqa=grouped)[0]


@lru_cache(maxsize=MASKS_KEPT)
def block_mask(plan: AttentionPlan, device: str) -> BlockMask:
    """The plan's mask on a device; the layers of a model ask for it one after the other."""
    full_QK, partial_QK = block_kinds(plan.ends_S)
    counts, indices = _listed(partial_QK, device)
    full_counts, full_indices = _listed(full_QK, device)
    return BlockMask.from_kv_blocks(
        counts,
        indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=BLOCK,
        mask_mod=ancestors_only(plan.ends_S, device),
        seq_lengths=(plan.slots, plan.slots),
    )


def ancestors_only(ends_S: Ints, device: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention's mask: a query sees itself and the slots above it. `ends_S`: one past each slot's last below."""
    padded = np.zeros(-(-len(ends_S) // BLOCK) * BLOCK, np.int32)
    padded[: len(ends_S)] = ends_S
    ends = torch.from_numpy(padded).to(device)

    def mask(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < ends[key])

    return mask


def block_kinds(ends_S: Ints) -> tuple[Blocks, Blocks]:
    """Which blocks of keys a block of queries sees whole, and which in part: two [Q, K] masks."""
    slots = len(ends_S)
    starts_B = np.arange(0, slots, BLOCK)
    lasts_B = np.minimum(starts_B + BLOCK, slots) - 1
    least_B, most_B = np.minimum.reduceat(ends_S, starts_B), np.maximum.reduceat(ends_S, starts_B)
    before_QK = starts_B[:, None] > lasts_B[None]
    full_QK = before_QK & (lasts_B[:, None] < least_B[None])
    seen_QK = (before_QK & (starts_B[:, None] < most_B[None])) | np.eye(len(starts_B), dtype=np.bool_)
    return full_QK, seen_QK & ~full_QK


def _listed(blocks_QK: Blocks, device: str) -> tuple[Tensor, Tensor]:
    """Counts [1, 1, Q], and indices [1, 1, Q, K] of the blocks named, which stand first."""
    order_QK = np.argsort(~blocks_QK, axis=1, kind="stable").astype(np.int32)
    counts_Q = blocks_QK.sum(axis=1).astype(np.int32)
    return torch.from_numpy(counts_Q).to(device)[None, None], torch.from_numpy(order_QK).to(device)[None, None]


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)
