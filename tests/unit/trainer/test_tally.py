"""What a batch showed, in all and by domain, is the same however it was cut into micro-batches or ranks."""

import math
import pickle

import numpy as np
import pytest
import torch
from trainer_rows import row

from services.trainer.adapters.gradient_norms import norm_histogram
from services.trainer.adapters.tally import Tally
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.losses import TokenTerms
from services.trainer.domain.rows import Row

# Ratios by token: tool 1, 2; qa 1/2, 1 (fresh); engine's probability 1/2 everywhere.
TOOL, QA = row("a", [0, 1, 1], domain="tool"), row("b", [1, 1], domain="qa", policy_step=3)
RATIO_N = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)


def seen(rows: list[Row], ratio_N: torch.Tensor, losses: list[float], cut: list[bool], tally: Tally) -> None:
    logprobs_N = (0.5 * ratio_N).log()
    loss_N = torch.tensor(losses, dtype=torch.float64)
    tally.add(rows, logprobs_N, torch.arange(len(losses)) * 1.0, TokenTerms(loss_N, torch.tensor(cut), ratio_N))


def whole() -> Tally:
    tally = Tally(3)
    seen([TOOL, QA], RATIO_N, [1.0, 2.0, 3.0, 6.0], [False, True, False, False], tally)
    return tally


def test_by_hand():
    stats = whole().stats(0.25)
    assert (stats.tokens, stats.fresh_tokens, stats.grad_noise) == (4, 2, 0.25)
    assert stats.loss == 12.0  # the objective: weights of 1
    assert stats.entropy == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert (stats.ratio_mean, stats.ratio_max) == (pytest.approx(4.5 / 4), pytest.approx(2.0))
    assert stats.clip_share == 0.25
    # k3 = r - 1 - ln r: 0, 1 - ln2, ln2 - 1/2, 0: their sum is 1/2
    assert stats.mismatch_kl == pytest.approx(0.5 / 4)
    assert stats.fresh_kl == pytest.approx((math.log(2) - 0.5) / 2)
    assert stats.logprob_diff_mean == pytest.approx(2 * math.log(2) / 4)
    assert (stats.fresh_diff_mean, stats.fresh_diff_max) == (
        pytest.approx(math.log(2) / 2),
        pytest.approx(math.log(2)),
    )
    tool, qa = stats.domains["tool"], stats.domains["qa"]
    assert (tool.tokens, tool.loss, tool.ratio_max, tool.clip_share) == (2, 1.5, pytest.approx(2.0), 0.5)
    assert (qa.tokens, qa.loss, qa.ratio_mean, qa.clip_share) == (2, 4.5, pytest.approx(0.75), 0.0)
    assert qa.mismatch_kl == pytest.approx((math.log(2) - 0.5) / 2)


def test_ranks_add_up_to_one_process():
    parts = Tally(3), Tally(3), Tally(3)
    seen([TOOL], RATIO_N[:2], [1.0, 2.0], [False, True], parts[0])
    tally = Tally(3)
    logprobs_N, loss_N = (0.5 * RATIO_N[2:]).log(), torch.tensor([3.0, 6.0], dtype=torch.float64)
    terms = TokenTerms(loss_N, torch.tensor([False, False]), RATIO_N[2:])
    parts[1].add([QA], logprobs_N, torch.tensor([2.0, 3.0]), terms)
    for part in parts:  # the third rank saw nothing
        tally.plus(pickle.loads(pickle.dumps(part)))
    assert tally.stats(0.25) == whole().stats(0.25)


def test_of_nothing_all_is_zero():
    stats = Tally(0).stats(0.0)
    assert (stats.tokens, stats.loss, stats.ratio_mean, stats.ratio_max, stats.fresh_diff_max) == (
        0,
        0.0,
        0.0,
        0.0,
        0.0,
    )
    assert stats.histograms["ratio"].quantile(0.5) == 0.0


def test_ratios_fall_into_bounded_buckets():
    ratio = whole().stats(0.0).histograms["ratio"]
    assert len(ratio.counts) == len(ratio.edges) + 1 == 21
    found = {edge: count for edge, count in zip(("below", *ratio.edges), ratio.counts, strict=True) if count}
    assert found == {0.5: 1, 1.0: 2, 2.0: 1}  # by lower edge
    assert (ratio.count, ratio.low, ratio.high) == (4, pytest.approx(0.5), pytest.approx(2.0))
    assert ratio.quantile(1.0) == pytest.approx(2.0)


def test_quantiles_are_within_a_bucket_of_the_truth():
    values = np.random.default_rng(0).lognormal(0.0, 0.05, 10_000)
    edges = tuple(np.arange(0.7, 1.3, 0.01).tolist())
    histogram = Histogram.of(edges, values[:4000]).plus(Histogram.of(edges, values[4000:]))
    for share in (0.01, 0.5, 0.95, 0.99):
        assert histogram.quantile(share) == pytest.approx(float(np.quantile(values, share)), abs=0.01)
    assert (histogram.quantile(0.0), histogram.quantile(1.0)) == (values.min(), values.max())
    with pytest.raises(ValueError, match="edges"):
        histogram.plus(Histogram.of((1.0,), values))


def test_gradient_norms_are_those_of_whole_parameters():
    # two ranks hold halves of three parameters: squares 9 + 16, 0 + 1, 0 + 0: norms 5, 1, 0
    histogram = norm_histogram([[9.0, 0.0, 0.0], [16.0, 1.0, 0.0]])
    assert (histogram.count, histogram.low, histogram.high) == (3, 0.0, 5.0)
    found = {edge: n for edge, n in zip((0.0, *histogram.edges), histogram.counts, strict=True) if n}
    assert found == {0.0: 1, 1.0: 2}
