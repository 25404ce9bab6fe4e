"""Losses and gradients against plain numpy in float64, and against TRL's own values on the same numbers.

TRL is no dependency: what TRL 1.16.0 gave stands in trl_values/losses.json, and trl_values/make.py made it.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from services.trainer.domain.losses import Cispo, Grpo, Gspo, Interval, Loss, PpoClip, TokenBatch, TruncatedImportance

Array = NDArray[np.float64]
LOW, HIGH, CAP = 0.2, 0.3, 1.4
INTERVAL = Interval(LOW, HIGH)


def clipped(ratio: float, advantage: float) -> float:
    return -min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)


def ppo(logprobs: Array, sampled: Array, advantages: Array, sequences: list[int], fixed: Array) -> float:
    return sum(clipped(math.exp(p - q), a) for p, q, a in zip(logprobs, sampled, advantages, strict=True))


def cispo(logprobs: Array, sampled: Array, advantages: Array, sequences: list[int], fixed: Array) -> float:
    """`fixed`: the log-probabilities behind the stop-gradient."""
    weights = [min(math.exp(f - q), CAP) for f, q in zip(fixed, sampled, strict=True)]
    return sum(-w * a * p for w, a, p in zip(weights, advantages, logprobs, strict=True))


def gspo(logprobs: Array, sampled: Array, advantages: Array, sequences: list[int], fixed: Array) -> float:
    """Equation 5 and 7 as they stand: a sequence's own ratio, once for each of its tokens."""
    total = 0.0
    for sequence in set(sequences):
        mine = [i for i, owner in enumerate(sequences) if owner == sequence]
        ratio = math.exp(sum(logprobs[i] - sampled[i] for i in mine) / len(mine))
        total += len(mine) * clipped(ratio, advantages[mine[0]])
    return total


def truncated(logprobs: Array, sampled: Array, advantages: Array, sequences: list[int], fixed: Array) -> float:
    """PPO-clip with min(weight, CAP) in place of the weight that clipping left, the cut itself without gradient."""
    total = 0.0
    for p, q, a, f in zip(logprobs, sampled, advantages, fixed, strict=True):
        at_fixed = math.exp(f - q)
        cut = clipped(at_fixed, a) != -at_fixed * a
        weight = min(max(at_fixed, 1 - LOW), 1 + HIGH) if cut else at_fixed
        total += clipped(math.exp(p - q), a) * (CAP / weight if weight > CAP else 1.0)
    return total


Reference = Callable[[Array, Array, Array, list[int], Array], float]
PAIRS: list[tuple[Loss, Reference]] = [
    (Cispo(CAP), cispo),
    (PpoClip(INTERVAL), ppo),
    (Grpo(INTERVAL), ppo),
    (Gspo(INTERVAL), gspo),
    (TruncatedImportance(PpoClip(INTERVAL), CAP), truncated),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("loss", "reference"), PAIRS, ids=lambda value: type(value).__name__)
def test_value_and_gradient_equal_plain_numpy_and_central_differences(loss: Loss, reference: Reference, seed: int):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 6)
    sequences = np.repeat(np.arange(6), lengths).tolist()
    sampled = -rng.exponential(1.0, len(sequences))
    fixed = sampled + rng.normal(0.0, 0.5, len(sequences))
    advantages = np.repeat(rng.normal(0.0, 1.0, 6), lengths)
    logprobs_N = torch.tensor(fixed, requires_grad=True)
    batch = TokenBatch(logprobs_N, torch.tensor(sampled), torch.tensor(advantages), torch.tensor(sequences))
    value = loss.terms(batch).loss_N.sum()
    value.backward()
    assert float(value.detach()) == pytest.approx(reference(fixed, sampled, advantages, sequences, fixed), rel=1e-12)
    assert logprobs_N.grad is not None
    for index, got in enumerate(logprobs_N.grad.tolist()):
        nudge = np.zeros_like(fixed)
        nudge[index] = 1e-6
        above, below = (reference(fixed + s * nudge, sampled, advantages, sequences, fixed) for s in (1, -1))
        assert got == pytest.approx((above - below) / 2e-6, abs=1e-7)


TRL = json.loads((Path(__file__).parent / "trl_values" / "losses.json").read_text())
OURS: dict[str, tuple[Loss, ...]] = {
    "cispo": (Cispo(1.5),),
    "ppo_clip": (PpoClip(Interval(0.2, 0.2)), Grpo(Interval(0.2, 0.2))),
    "two_sided": (TruncatedImportance(PpoClip(Interval(0.2, 0.2)), 1.5),),
    "gspo": (Gspo(Interval(0.2, 0.2)),),
}


@pytest.mark.parametrize("batch_name", ["two_by_three", "ragged"])
@pytest.mark.parametrize("kind", list(OURS))
def test_equals_trl(kind: str, batch_name: str):
    assert TRL["trl"] == "1.16.0"
    given, wanted = TRL["batches"][batch_name], TRL["values"][batch_name][kind]
    mask_BT = np.asarray(given["mask"], bool)
    sequences_N = torch.from_numpy(np.nonzero(mask_BT)[0])
    lengths_B = mask_BT.sum(axis=1)
    # TRL's mean over tokens, for GSPO over each sequence's tokens and then over sequences.
    weights_B = 1 / (len(lengths_B) * lengths_B) if kind == "gspo" else np.full(len(lengths_B), 1 / mask_BT.sum())
    for loss in OURS[kind]:
        logprobs_N = torch.tensor(np.log(np.asarray(given["trained"])[mask_BT]), requires_grad=True)
        sampled_N = torch.tensor(np.log(np.asarray(given["sampled"])[mask_BT]))
        advantages_N = torch.tensor(given["advantages"], dtype=torch.float64)[sequences_N]
        terms = loss.terms(TokenBatch(logprobs_N, sampled_N, advantages_N, sequences_N))
        value = (torch.tensor(weights_B)[sequences_N] * terms.loss_N).sum()
        value.backward()
        assert float(value.detach()) == pytest.approx(wanted["loss"], rel=1e-12)
        assert logprobs_N.grad is not None
        gradient_N = np.asarray(wanted["gradient"])[mask_BT]
        if kind == "two_sided":
            # TRL's second clip takes the gradient away where ours keeps a weight of 1.5.
            kept_N = (~(terms.importance_N == 1.5)).numpy()
            assert logprobs_N.grad.numpy()[kept_N] == pytest.approx(gradient_N[kept_N], rel=1e-12)
            continue
        assert logprobs_N.grad.numpy() == pytest.approx(gradient_N, rel=1e-12)
