"""How fast this machine trains this model: measured once, when a run begins. It refuses to predict."""

# transformers' and torch's modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import time
from typing import Any

import numpy as np
import torch

from services.trainer.adapters.library_pass import library_pass
from services.trainer.adapters.merging import cost_of
from services.trainer.adapters.objective import TokenScores
from services.trainer.domain.merging import FREE_CALLS, Pace
from services.trainer.domain.rows import Row
from services.trainer.ports import Recipe
from services.trainer.tree.attention import tree_attention
from services.trainer.tree.choice import work_of
from services.trainer.tree.cost import ModelCost
from services.trainer.tree.forest import build_forest
from services.trainer.tree.passes import PassOptions
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import whole_model

REPEATS = 3

ROWS, ROW_TOKENS = 4, 256
"""What is timed: the length of a short episode, side by side."""


def measure_pace(model: Any, recipe: Recipe) -> Pace:
    """Seconds an operation and a call; the model's gradients are as before, which are none, and so is chance."""
    cost = cost_of(whole_model(model).config)
    return FREE_CALLS if cost is None else Pace(_operation_s(model, recipe, cost), _call_s(model))


def _operation_s(model: Any, recipe: Recipe, cost: ModelCost) -> float:
    """Of a few rows, branch by branch; the fastest of a few goes."""
    tokens = max(2, min(ROW_TOKENS, recipe.micro_batch_tokens))
    row = _row(tokens, whole_model(model).config.vocab_size)
    rows = [row] * max(1, min(ROWS, recipe.micro_batch_tokens // tokens))
    forest = build_forest([row.token_ids_T for row in rows], merge=False)
    work = work_of(forest, [np.flatnonzero(row.trained_T) for row in rows], cost)
    options = PassOptions(recipe.micro_batch_tokens, recipe.activation_checkpointing, local=True)
    taken_s: list[float] = []
    # Dropout, where there is any, goes on as if nothing had been measured.
    with torch.random.fork_rng(devices=[]):
        for _ in range(REPEATS):
            before_s = time.perf_counter()
            library_pass(model, rows, lambda _rows, scores: _sum(scores), options)
            taken_s.append(time.perf_counter() - before_s)
            model.zero_grad(set_to_none=True)
    return min(taken_s) / work.operations


def _row(tokens: int, vocabulary: int) -> Row:
    """Any tokens, the second half of them trained."""
    trained_T, zeros_T, ones_T = np.arange(tokens) >= max(1, tokens // 2), np.zeros(tokens), np.ones(tokens)
    steps_T = np.zeros(tokens, np.int64)
    return Row(
        episode_id="pace",
        group_id="pace",
        domain="pace",
        token_ids_T=np.arange(tokens, dtype=np.int64) % vocabulary,
        trained_T=trained_T,
        advantages_T=zeros_T,
        logprobs_T=zeros_T,
        temperatures_T=ones_T,
        top_ps_T=ones_T,
        policy_steps_T=steps_T,
        turns_T=steps_T,
        weights_T=zeros_T,
    )


def _sum(scores: TokenScores) -> torch.Tensor:
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
