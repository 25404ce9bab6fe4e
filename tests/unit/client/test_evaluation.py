"""Counting held-out results, with intervals from a table."""

import pytest
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb

from services.client.evaluation import count, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe 1998, table I (method 3): 81/263, 15/148, 0/20, 1/29.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_no_trials_say_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def view(domain: str, performance: float | None) -> episodes_pb.EpisodeView:
    made = episodes_pb.EpisodeView(submission=episodes_pb.Submission(domain=domain))
    if performance is not None:
        made.score.performance = performance
    return made


def test_what_has_no_verdict_is_not_a_wrong_answer():
    found = count([view("a", 1.0), view("a", 0.5), view("a", 0.4), view("a", None), view("b", 0.0)])
    assert (found["a"].solved, found["a"].counted, found["a"].excluded) == (2, 3, 1)
    assert found["a"].rate == pytest.approx(2 / 3)
    assert (found["b"].solved, found["b"].counted, found["b"].excluded) == (0, 1, 0)
