"""How fast this machine trains this model: measured once, on a row of the first batch. It refuses to predict."""

# transformers' and torch's modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from services.trainer.adapters.library_pass import library_pass
from services.trainer.adapters.objective import TokenScores
from services.trainer.adapters.row_targets import computed_ids
from services.trainer.domain.rows import Row
from services.trainer.tree.attention import tree_attention
from services.trainer.tree.choice import Pace, work_of
from services.trainer.tree.cost import ModelCost
from services.trainer.tree.forest import build_forest
from services.trainer.tree.passes import PassOptions
from services.trainer.tree.plan import plan_attention

REPEATS = 3
LONGEST_TOKENS = 4096


class Gauge:
    """Holds the pace of one model on this machine."""

    def __init__(self) -> None:
        self._pace: Pace | None = None

    def pace(self, model: Any, rows: Sequence[Row], cost: ModelCost, budget_tokens: int) -> Pace:
        """Seconds an operation and a call; the model's gradients are as before the call, which are none."""
        if self._pace is None:
            self._pace = Pace(_operation_s(model, rows, cost, budget_tokens), _call_s(model))
        return self._pace


def _operation_s(model: Any, rows: Sequence[Row], cost: ModelCost, budget_tokens: int) -> float:
    """Of some rows of middling length, branch by branch; the fastest of a few goes."""
    middling = cut(sorted(rows, key=lambda row: row.length)[len(rows) // 2], min(budget_tokens, LONGEST_TOKENS))
    count = max(1, min(len(rows), budget_tokens // max(1, middling.length), 4))
    sample = [middling] * count
    forest = build_forest([computed_ids(row) for row in sample], merge=False)
    work = work_of(forest, [np.flatnonzero(row.trained_T) for row in sample], cost)
    taken_s: list[float] = []
    # Dropout, where there is any, goes on as if nothing had been measured.
    with torch.random.fork_rng(devices=[]):
        for _ in range(REPEATS):
            before_s = time.perf_counter()
            library_pass(model, sample, _plain_loss, PassOptions(budget_tokens, local=True))
            taken_s.append(time.perf_counter() - before_s)
            model.zero_grad(set_to_none=True)
    return min(taken_s) / work.operations


def cut(row: Row, tokens: int) -> Row:
    """The row's first tokens, one of them trained: a row beyond the budget is never measured whole."""
    if row.length <= tokens:
        return row
    arrays = {field.name: getattr(row, field.name)[:tokens] for field in fields(row) if field.name.endswith("_T")}
    short = replace(row, **arrays)
    short.trained_T[-1:] = True
    return short


def _plain_loss(_rows: Sequence[Row], scores: TokenScores) -> torch.Tensor:
    return scores.logprobs_N.sum()


def _call_s(model: Any) -> float:
    """Of attention over two tokens, forwards and backwards, less what is there without any call: next to nothing."""
    plan = plan_attention(build_forest([np.zeros(2, np.int64)]))
    like = next(model.parameters())
    taken_s: list[float] = []
    for _ in range(REPEATS * 3):
        query, key, value = (
            torch.ones(1, 2, 16, dtype=like.dtype, device=like.device, requires_grad=True) for _ in range(3)
        )
        before_s = time.perf_counter()
        torch.autograd.backward(tree_attention(query, key, value, plan, 1.0).sum())
        taken_s.append(time.perf_counter() - before_s)
    return min(taken_s)
