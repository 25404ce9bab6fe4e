"""J's variance term: nothing but signal is 0, nothing but noise is 1, also where the halves aren't equal."""

import numpy as np
import pytest
import torch

from services.trainer.adapters.batch_pass import squares
from services.trainer.domain.noise import noise_ratio


def measured(first: list[float], second: list[float], share: float) -> float:
    """Of two halves' gradients, spread over two parameters."""
    g1 = [torch.tensor(first[:1]), torch.tensor(first[1:])]
    g = [torch.tensor(first[:1]) + torch.tensor(second[:1]), torch.tensor(first[1:]) + torch.tensor(second[1:])]
    return noise_ratio(*squares(g1, g, share), share)


def test_by_hand():
    # equal halves: |g1 - g2|^2 / |g1 + g2|^2 = |(2, 0)|^2 / |(4, 2)|^2
    assert measured([3.0, 1.0], [1.0, 1.0], 0.5) == pytest.approx(4 / 20)
    # a quarter and three quarters: means (4, 0) and (0, 4); 3/16 * |(4, -4)|^2 / |(1, 3)|^2
    assert measured([1.0, 0.0], [0.0, 3.0], 0.25) == pytest.approx(3 / 16 * 32 / 10)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_one_gradient_everywhere_is_no_noise(share: float):
    gradient = np.array([2.0, -1.0])
    halves = (share * gradient).tolist(), ((1 - share) * gradient).tolist()
    assert measured(*halves, share) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_independent_noise_is_one_on_average_over_many_parameters(share: float):
    rng = np.random.default_rng(0)
    # means over s and 1 - s of the tokens: variances 1/s and 1/(1-s) of a token's, times s^2 and (1-s)^2 as shares
    g1 = rng.normal(0.0, np.sqrt(share), 200_000)
    g2 = rng.normal(0.0, np.sqrt(1 - share), 200_000)
    assert measured(g1.tolist(), g2.tolist(), share) == pytest.approx(1.0, rel=0.02)


def test_one_half_alone_has_no_estimate():
    assert measured([1.0, 1.0], [0.0, 0.0], 1.0) == 0.0
    assert measured([0.0, 0.0], [0.0, 0.0], 0.5) == 0.0
