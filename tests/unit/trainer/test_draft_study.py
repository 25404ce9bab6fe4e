"""What the draft head's load test makes of its measurements."""

import pytest

from loadtests.draft_head.measure import Guesses, Moved, verifications
from loadtests.draft_head.study import Row, kept_share


def test_after_an_accepted_guess_the_next_token_is_not_guessed() -> None:
    assert verifications([1.0, 1.0, 1.0]) == (2.0, 2.0)
    assert verifications([0.0, 0.0, 0.0]) == (3.0, 0.0)
    # The second is guessed where the first guess was refused: 1 + 0.5 verifications, 0.5 + 0.5 * 0.5 accepted.
    assert verifications([0.5, 0.5]) == (1.5, 0.75)


def row(step: int, kl: float, frozen: float, cotrained: float) -> Row:
    return Row(step, 0.0, Moved(kl, 0.3), Guesses(0.5, frozen), Guesses(0.5, cotrained))


def test_the_least_within_the_band_is_told_as_a_share_of_the_start() -> None:
    rows = [row(0, 0.0, 1.6, 1.6), row(6, 0.19, 1.0, 1.0), row(12, 0.2, 1.2, 1.52), row(18, 0.7, 1.28, 1.56)]
    assert kept_share(rows, "frozen") == pytest.approx(0.75)
    assert kept_share(rows, "cotrained") == pytest.approx(0.95)
    assert kept_share([*rows[:2], row(12, 0.71, 1.0, 1.0)], "cotrained") is None
