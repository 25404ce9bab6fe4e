"""Every loss on two sequences of three tokens, each number worked out on paper.

            sampled p   trained p   ratio r     A
sequence 0  1/2 1/8 1/2  1/2 1/2 1/4   1  4  1/2    1
sequence 1  1/5 4/5 1/10 2/5 3/5 2/5   2 3/4  4    -1/2
"""

import math

import pytest
import torch

from services.trainer.domain.losses import Cispo, Grpo, Gspo, Interval, Loss, PpoClip, TokenBatch, TruncatedImportance

SAMPLED_N = torch.tensor([1 / 2, 1 / 8, 1 / 2, 1 / 5, 4 / 5, 1 / 10], dtype=torch.float64).log()
TRAINED_N = torch.tensor([1 / 2, 1 / 2, 1 / 4, 2 / 5, 3 / 5, 2 / 5], dtype=torch.float64).log()
ADVANTAGES_N = torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5, -0.5], dtype=torch.float64)
SEQUENCES_N = torch.tensor([0, 0, 0, 1, 1, 1])
WIDE = Interval(0.2, 0.2)
LN2 = math.log(2)


def worked(loss: Loss) -> tuple[list[float], list[bool], list[float]]:
    """Loss and cut of each token, and the gradient of their sum by log-probability."""
    logprobs_N = TRAINED_N.clone().requires_grad_()
    terms = loss.terms(TokenBatch(logprobs_N, SAMPLED_N, ADVANTAGES_N, SEQUENCES_N))
    terms.loss_N.sum().backward()
    assert logprobs_N.grad is not None
    assert not terms.importance_N.requires_grad
    return terms.loss_N.tolist(), terms.cut_N.tolist(), logprobs_N.grad.tolist()


def test_cispo():
    # weight min(r, 1.5) = 1 1.5 .5 | 1.5 .75 1.5; loss -weight A log p; gradient -weight A, also where it was cut
    loss, cut, gradient = worked(Cispo(1.5))
    logs = [math.log(2 / 5), math.log(3 / 5), math.log(2 / 5)]
    assert loss == pytest.approx([LN2, 1.5 * LN2, 0.5 * 2 * LN2, 0.75 * logs[0], 0.375 * logs[1], 0.75 * logs[2]])
    assert cut == [False, True, False, True, False, True]
    assert gradient == pytest.approx([-1.0, -1.5, -0.5, 0.75, 0.375, 0.75])
    assert sum(loss) / 6 == pytest.approx(0.143337, abs=1e-6)


@pytest.mark.parametrize("loss", [PpoClip(WIDE), Grpo(WIDE)])
def test_ppo_clip_and_grpo(loss: Loss):
    # interval [.8, 1.2]. A = 1: min(1, 1), min(4, 1.2) is cut, min(.5, .8) isn't: pulling back in is free.
    # A = -1/2: min(-1, -.6) isn't cut, min(-.375, -.4) is, min(-2, -.6) isn't: a ratio of 4 has its whole weight.
    values, cut, gradient = worked(loss)
    assert values == pytest.approx([-1.0, -1.2, -0.5, 1.0, 0.4, 2.0])
    assert cut == [False, True, False, False, True, False]
    assert gradient == pytest.approx([-1.0, 0.0, -0.5, 1.0, 0.0, 2.0])
    assert sum(values) / 6 == pytest.approx(0.7 / 6)


def test_gspo():
    # s0 = (1 * 4 * 1/2)^(1/3) = 2^(1/3) = 1.259921, cut to 1.2 as A > 0; s1 = (2 * 3/4 * 4)^(1/3) = 6^(1/3) = 1.817121
    values, cut, gradient = worked(Gspo(WIDE))
    assert values == pytest.approx([-1.2] * 3 + [0.5 * 6 ** (1 / 3)] * 3)
    assert cut == [True] * 3 + [False] * 3
    assert gradient == pytest.approx([0.0] * 3 + [0.908560] * 3, abs=1e-6)


def test_gspo_gives_each_turn_of_a_sequence_its_own_advantage():
    # one sequence: s = (2^(1/3) * 6^(1/3))^(1/2) = 12^(1/6) = 1.513086, inside [0, 2]; gradient -s A of each token
    logprobs_N = TRAINED_N.clone().requires_grad_()
    batch = TokenBatch(logprobs_N, SAMPLED_N, ADVANTAGES_N, torch.zeros(6, dtype=torch.long))
    Gspo(Interval(1.0, 1.0)).terms(batch).loss_N.sum().backward()
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.tolist() == pytest.approx([-(12 ** (1 / 6))] * 3 + [0.5 * 12 ** (1 / 6)] * 3)


def test_truncated_weights_bound_what_clipping_leaves():
    # of PPO's weights 1 1.2 .5 | 2 .8 4 those above 1.5 become 1.5, in the loss and in the gradient
    values, cut, gradient = worked(TruncatedImportance(PpoClip(WIDE), 1.5))
    assert values == pytest.approx([-1.0, -1.2, -0.5, 0.75, 0.4, 0.75])
    assert cut == [False, True, False, True, True, True]
    assert gradient == pytest.approx([-1.0, 0.0, -0.5, 0.75, 0.0, 0.75])


def test_truncated_weights_of_sequences():
    # GSPO's weights 1.2 | 1.817 become 1.2 | 1.5
    values, cut, gradient = worked(TruncatedImportance(Gspo(WIDE), 1.5))
    assert values == pytest.approx([-1.2] * 3 + [0.75] * 3)
    assert cut == [True] * 6
    assert gradient == pytest.approx([0.0] * 3 + [0.75] * 3)


def test_a_weight_is_never_truncated_twice():
    for inner in (Cispo(5.0), TruncatedImportance(PpoClip(WIDE), 2.0)):
        with pytest.raises(ValueError, match="twice"):
            TruncatedImportance(inner, 2.0)


def test_a_ratio_of_nothing_is_no_nan_under_truncation():
    logprobs_N = torch.tensor([-2000.0], requires_grad=True)
    batch = TokenBatch(logprobs_N, torch.tensor([-1.0]), torch.tensor([1.0]), torch.zeros(1, dtype=torch.long))
    terms = TruncatedImportance(PpoClip(WIDE), 2.0).terms(batch)
    terms.loss_N.sum().backward()
    assert logprobs_N.grad is not None
    assert (float(terms.loss_N.detach()), float(logprobs_N.grad)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("loss", "interval"),
    [
        (Cispo(5.0), "[0, 5]"),
        (PpoClip(Interval(0.2, 0.28)), "[0.8, 1.28]"),
        (Grpo(Interval(0.1, 0.3)), "[0.9, 1.3]"),
        (Gspo(Interval(3e-4, 4e-4)), "[0.9997, 1.0004]"),
        (TruncatedImportance(Grpo(WIDE), 2.5), "[0.8, 1.2]; advantages over their group's standard deviation; "),
        (TruncatedImportance(Grpo(WIDE), 2.5), "cut to 2.5"),
    ],
)
def test_the_interval_in_force_is_told(loss: Loss, interval: str):
    assert interval in loss.describe()


def test_only_a_sequences_ratio_needs_whole_sequences():
    losses = (Cispo(5.0), PpoClip(WIDE), Grpo(WIDE), Gspo(WIDE), TruncatedImportance(Gspo(WIDE), 2.0))
    assert [loss.per_token for loss in losses] == [True, True, True, False, False]
    assert TruncatedImportance(Grpo(WIDE), 2.0).per_token
