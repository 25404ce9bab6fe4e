"""The batch's objective: weights times losses; and whatever isn't finite is named by episode, turn and token."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from trainer_rows import row

from services.trainer.adapters.blame import blame
from services.trainer.adapters.objective import Objective, TokenScores
from services.trainer.adapters.tally import Tally
from services.trainer.domain.losses import Cispo, Interval, PpoClip, TokenTerms
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row

FIRST = row("a", [0, 1, 1, 0, 1], turn=1)
SECOND = row("b", [0, 0, 1, 1], turn=2)


def scores(probabilities: list[float]) -> TokenScores:
    logprobs_N = torch.tensor(probabilities, dtype=torch.float64).log()
    return TokenScores(logprobs_N.requires_grad_(), torch.ones_like(logprobs_N))


def test_it_is_the_sum_of_weight_times_loss():
    # ratios 1 2 1 | 1 1/2 of probabilities 1/2 1 1/2 | 1/2 1/4; cap 1.5; weights 1/4 each of a, 1/8 each of b
    rows = (replace(FIRST, weights_T=FIRST.trained_T / 4), replace(SECOND, weights_T=SECOND.trained_T / 8))
    given = scores([0.5, 1.0, 0.5, 0.5, 0.25])
    tally = Tally(0)
    value = Objective(Cispo(1.5), tally)(rows, given)
    # losses -w log p: ln2, 0, ln2 | ln2, 1/2 * 2 ln2
    assert float(value.detach()) == pytest.approx(2 * math.log(2) / 4 + 2 * math.log(2) / 8)
    value.backward()
    assert given.logprobs_N.grad is not None
    assert given.logprobs_N.grad.tolist() == pytest.approx([-1 / 4, -1.5 / 4, -1 / 4, -1 / 8, -0.5 / 8])
    stats = tally.stats(0.0)
    assert stats.loss == pytest.approx(float(value.detach()))
    assert (stats.tokens, stats.ratio_max, stats.clip_share) == (5, pytest.approx(2.0), pytest.approx(0.2))


class Broken:
    """A loss that isn't finite at one token."""

    per_token = True

    def describe(self) -> str:
        return "broken"

    def terms(self, batch: object) -> TokenTerms:
        return TokenTerms(torch.tensor([0.0, 0.0, 0.0, math.inf, 0.0]), torch.zeros(5), torch.ones(5))


def poisoned(name: str, value: float) -> tuple[tuple[Row, Row], TokenScores]:
    """The fourth trained token, b's first at place 2, has a bad number in one of the inputs."""
    given, second = scores([0.5] * 5), SECOND
    if name in ("logprobs_T", "advantages_T"):
        numbers_T = getattr(SECOND, name).copy()
        numbers_T[2] = value
        second = replace(SECOND, **{name: numbers_T})
    else:
        tensor: Tensor = getattr(given, name).detach().clone()
        tensor[3] = value
        given = replace(given, **{name: tensor.requires_grad_(name == "logprobs_N")})
    return (FIRST, second), given


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("logprobs_N", "the trainer's log-probability"),
        ("logprobs_T", "the engine's log-probability"),
        ("advantages_T", "advantage"),
        ("entropies_N", "entropy of the logits"),
    ],
)
def test_a_poisoned_token_in_the_middle_of_a_batch_is_named(name: str, what: str, value: float):
    rows, given = poisoned(name, value)
    tally = Tally(0)
    with pytest.raises(StepRefused) as refused:
        Objective(Cispo(5.0), tally)(rows, given)
    assert refused.value.detail == f"episode b: turn 2: token 2 of its branch: {what} is not finite"
    assert given.logprobs_N.grad is None
    assert tally.stats(0.0).tokens == 0


def test_a_loss_that_is_not_finite_is_named():
    with pytest.raises(StepRefused, match="episode b: turn 2: token 2 of its branch: loss is not finite"):
        Objective(Broken(), Tally(0))((FIRST, SECOND), scores([0.5] * 5))


def test_an_overflowing_ratio_is_a_loss_that_is_not_finite():
    # r = e^800 overflows where nothing caps it
    far = replace(SECOND, advantages_T=-SECOND.advantages_T, logprobs_T=np.where(SECOND.trained_T, -800.0, 0.0))
    with pytest.raises(StepRefused, match="episode b: turn 2: token 2 of its branch: loss"):
        Objective(PpoClip(Interval(0.2, 0.2)), Tally(0))((FIRST, far), scores([0.5] * 5))


@pytest.mark.parametrize("guilty", [("a", 1), ("a", 2), ("a", 4), ("b", 2), ("b", 3), ("c", 1)])
def test_blame_finds_row_and_token_by_halving(guilty: tuple[str, int]):
    rows = [FIRST, row("idle", [0, 0]), SECOND, row("c", [0, 1], turn=7)]
    asked = 0

    def finite(tried: object) -> bool:
        nonlocal asked
        asked += 1
        return not any(r.episode_id == guilty[0] and r.trained_T[guilty[1]] for r in tried)  # type: ignore[attr-defined]

    turn = {"a": 1, "b": 2, "c": 7}[guilty[0]]
    assert blame(rows, finite) == f"episode {guilty[0]}: turn {turn}: token {guilty[1]} of its branch"
    assert asked <= 2 + 1 + 2


def test_blame_finds_nobody_where_only_the_sum_overflows():
    assert blame([FIRST, SECOND], lambda tried: len(list(tried)) < 2) == ""
