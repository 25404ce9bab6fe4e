"""Log-probabilities and entropies from hidden states, a chunk of the vocabulary's rows at a time.

Logits of all tokens never exist at once, and a chunk's own exist once: the backward pass turns the probabilities that
the forward pass made into the logits' gradient in place. It refuses to know where hidden states come from.
"""

# torch's autograd functions have no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.trainer.tree.forest import Ints

CHUNK_ELEMENTS = 1 << 22
"""Logits of a chunk: 16 MiB in float32, about what a core keeps near itself."""

CHUNK_ROWS = 256
"""Fewer rows than this a chunk, and reading the head's weight costs more than multiplying with it."""


@dataclass(frozen=True, slots=True)
class Targets:
    """N tokens to be scored: the slot whose hidden state predicts each, its id, and how it was sampled.

    predecessors_N and token_ids_N: int64; temperatures_N > 0 and top_ps_N in (0, 1]: float64.
    """

    predecessors_N: Ints
    token_ids_N: Ints
    temperatures_N: np.typing.NDArray[np.float64]
    top_ps_N: np.typing.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Targets that share one distribution share one of R rows of logits; rows stand in the order of slots.

    order_N: the targets, row by row; row r owns order_N[bounds[r]:bounds[r + 1]].
    """

    slots_R: Ints
    temperatures_R: np.typing.NDArray[np.float64]
    top_ps_R: np.typing.NDArray[np.float64]
    bounds: Ints
    order_N: Ints
    token_ids_N: Ints

    def within(self, start: int, end: int) -> tuple[int, int]:
        """The rows of slots [start, end)."""
        first, last = np.searchsorted(self.slots_R, [start, end]).tolist()
        return first, last


def head_rows(targets: Targets) -> HeadRows:
    """Group targets by slot, temperature and nucleus. A nucleus holds the sampled token, so there it counts too."""
    kept_N = np.where(targets.top_ps_N < 1, targets.token_ids_N, -1)
    keys = (kept_N, targets.top_ps_N, targets.temperatures_N, targets.predecessors_N)
    order_N = np.lexsort(keys).astype(np.int64)
    differs_N = np.zeros(len(order_N), np.bool_)
    for key in keys:
        sorted_N = key[order_N]
        differs_N[1:] |= sorted_N[1:] != sorted_N[:-1]
    differs_N[:1] = True
    firsts_R = np.flatnonzero(differs_N)
    of_R = order_N[firsts_R]
    return HeadRows(
        targets.predecessors_N[of_R],
        targets.temperatures_N[of_R],
        targets.top_ps_N[of_R],
        np.append(firsts_R, len(order_N)).astype(np.int64),
        order_N,
        targets.token_ids_N[order_N],
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The LM head in float32 or wider: weight [V, E], bias [V]; leaves, so that chunks can be sent back one by one."""

    weight_VE: Tensor
    bias_V: Tensor | None

    @property
    def rows_a_chunk(self) -> int:
        """Rows of logits made at once."""
        return max(CHUNK_ROWS, CHUNK_ELEMENTS // self.weight_VE.shape[0])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Scores of some targets: `targets_C` says which. logprobs_C has a gradient where hidden states have one."""

    first: int
    last: int
    targets_C: Ints
    logprobs_C: Tensor
    entropies_C: Tensor


def chunks(head: Head, hidden_SE: Tensor, start: int, rows: HeadRows) -> Iterator[tuple[Chunk, Tensor]]:
    """Scores of the targets of hidden states [start, start + S), and the hidden states used, a chunk at a time.

    The hidden states used are new leaves: the caller takes their gradient and is done with the chunk before the next.
    """
    low, high = rows.within(start, start + hidden_SE.shape[0])
    for first in range(low, high, head.rows_a_chunk):
        last = min(high, first + head.rows_a_chunk)
        slots_R = torch.from_numpy(rows.slots_R[first:last] - start).to(hidden_SE.device)
        leaf_RE = hidden_SE.detach().index_select(0, slots_R).requires_grad_(torch.is_grad_enabled())
        logprobs_C, entropies_C = score_rows(head, leaf_RE, rows, first, last)
        targets_C = rows.order_N[rows.bounds[first] : rows.bounds[last]]
        yield Chunk(first, last, targets_C, logprobs_C, entropies_C), leaf_RE


def score_rows(head: Head, hidden_RE: Tensor, rows: HeadRows, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities (with gradient) and entropies of the targets of rows [first, last), in the rows' order."""
    device = hidden_RE.device
    bounds = rows.bounds[first : last + 1]
    row_C = torch.from_numpy(np.repeat(np.arange(last - first), np.diff(bounds))).to(device)
    token_C = torch.from_numpy(rows.token_ids_N[bounds[0] : bounds[-1]]).to(device)
    temperature_R = torch.from_numpy(rows.temperatures_R[first:last]).to(device)
    top_p_R = torch.from_numpy(rows.top_ps_R[first:last]).to(device)
    marks = _Marks(row_C, token_C, temperature_R, top_p_R)
    wide_RE = hidden_RE.to(torch.promote_types(hidden_RE.dtype, torch.float32))
    logprobs_C, entropies_R = _Scores.apply(wide_RE, head.weight_VE, head.bias_V, marks)  # pyright: ignore
    return logprobs_C, entropies_R.index_select(0, row_C)


@dataclass(frozen=True, slots=True)
class _Marks:
    row_C: Tensor
    token_C: Tensor
    temperature_R: Tensor
    top_p_R: Tensor


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None, marks: _Marks
    ) -> tuple[Tensor, Tensor]:
        # One fused call: a sum of exponentials by itself goes over the logits four times.
        logits_RV = torch.log_softmax(torch.nn.functional.linear(hidden_RE, weight_VE, bias_V), dim=-1)
        probabilities_RV = logits_RV.exp()
        # Entropy of the untransformed distribution: -sum p log p, row by row, without another [R, V].
        entropies_R = -torch.bmm(probabilities_RV[:, None], logits_RV[:, :, None])[:, 0, 0]
        if bool(((marks.temperature_R != 1) | (marks.top_p_R < 1)).any()):
            logits_RV = _transformed(logits_RV, marks)
            torch.exp(logits_RV, out=probabilities_RV)
        ctx.marks = marks
        ctx.save_for_backward(hidden_RE, weight_VE, probabilities_RV)
        ctx.has_bias = bias_V is not None
        ctx.mark_non_differentiable(entropies_R)
        return logits_RV[marks.row_C, marks.token_C], entropies_R

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        marks: _Marks = ctx.marks
        hidden_RE, weight_VE, gradient_RV = ctx.saved_tensors
        per_row_R = grads[0].new_zeros(len(hidden_RE)).index_add_(0, marks.row_C, grads[0])
        # In place: a chunk goes back once.
        gradient_RV.mul_(-per_row_R[:, None])
        gradient_RV.index_put_((marks.row_C, marks.token_C), grads[0], accumulate=True)
        if bool((marks.temperature_R != 1).any()):
            gradient_RV /= marks.temperature_R[:, None].to(gradient_RV.dtype)
        hidden, weight, bias, _ = ctx.needs_input_grad
        return (
            gradient_RV @ weight_VE if hidden else None,
            gradient_RV.t() @ hidden_RE if weight else None,
            gradient_RV.sum(0) if ctx.has_bias and bias else None,
            None,
        )


def _transformed(logits_RV: Tensor, marks: _Marks) -> Tensor:
    """Normalised log-probabilities after temperature and nucleus; a row with a nucleus has one target."""
    scaled_RV = logits_RV / marks.temperature_R[:, None].to(logits_RV.dtype)
    if bool((marks.top_p_R < 1).any()):
        token_R = marks.token_C.new_zeros(len(scaled_RV)).index_put_((marks.row_C,), marks.token_C)
        scaled_RV.masked_fill_(outside_nucleus(scaled_RV, token_R, marks.top_p_R), float("-inf"))
    return torch.log_softmax(scaled_RV, dim=-1)


def outside_nucleus(scaled_NV: Tensor, token_ids_N: Tensor, top_ps_N: Tensor) -> Tensor:
    """Mask of the tokens that nucleus sampling would never take; the token that was taken is never among them."""
    probabilities_NV, order_NV = torch.softmax(scaled_NV, dim=-1).sort(dim=-1, descending=True)
    before_NV = probabilities_NV.cumsum(dim=-1) - probabilities_NV
    limits_N1 = top_ps_N.to(scaled_NV.dtype).unsqueeze(-1)
    # Without a nucleus nothing is outside; sums of many float32 terms reach 1 before the last one.
    cut_sorted_NV = (before_NV >= limits_N1) & (limits_N1 < 1)
    cut_NV = torch.zeros_like(cut_sorted_NV).scatter(-1, order_NV, cut_sorted_NV)
    return cut_NV.scatter(-1, token_ids_N.unsqueeze(-1), False)
