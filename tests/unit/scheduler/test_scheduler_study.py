"""The study's parts: the fit, the draws and the figures, against values worked out by hand."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from loadtests.scheduler.durations import GROUP, LIMIT_S, REGIMES, Items, draw
from loadtests.scheduler.measure import Case, chance_kl, figures, run
from loadtests.scheduler.platform import START_US, Imagined, Trace
from loadtests.scheduler.study import interval, points, window_name
from loadtests.scheduler.traces import GAP_LIMIT_S, episodes_s, fit, fitted, read_sessions
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if

TRACES = Path(__file__).parents[4] / "shared" / "traces" / "claude_code_sessions.jsonl.gz"


def request(t: float, api_time: float, stop: str = "tool_use") -> dict[str, object]:
    return {"t": t, "api_time": api_time, "stop": stop}


def test_an_episode_is_its_requests_and_the_gaps_between_them() -> None:
    """5 + (8 - 5) + 4 = 12; then a single answer, which is no episode; then 1 + 300 (of 989) + 2, cut off."""
    session = [
        request(0, 5),
        request(8, 4, "end_turn"),
        request(500, 7, "end_turn"),
        request(1000, 1),
        request(1990, 2),
    ]
    assert list(episodes_s([session])) == [12.0, 3.0 + GAP_LIMIT_S]


def sessions_of(durations_s: np.ndarray) -> list[list[dict[str, object]]]:
    return [[request(0, 0), request(0, duration_s, "end_turn")] for duration_s in durations_s]


def test_the_fit_finds_what_it_was_given() -> None:
    """Exact quantiles of a log-normal: mean 4, deviation 1.2; of a Pareto II: shape 1.5, scale 200."""
    ranks = (np.arange(4000) + 0.5) / 4000
    normal = np.array([math.sqrt(2) * _inverse_erf(2 * rank - 1) for rank in ranks])
    found = fit(sessions_of(np.exp(4 + 1.2 * normal)))
    assert (found.log_mean, found.log_deviation) == (pytest.approx(4.0, abs=1e-3), pytest.approx(1.2, rel=5e-3))
    assert found.ks_lognormal < 0.01 < found.ks_pareto
    assert found.lognormal_nats > found.pareto_nats
    other = fit(sessions_of(200 * ((1 - ranks) ** (-1 / 1.5) - 1)))
    assert (other.pareto_shape, other.pareto_scale_s) == (pytest.approx(1.5, rel=0.02), pytest.approx(200, rel=0.02))
    assert other.pareto_nats > other.lognormal_nats


def _inverse_erf(value: float) -> float:
    low, high = -6.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return low


def test_too_few_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match="given 2 episodes; allowed 30 or more"):
        fit(sessions_of(np.array([3.0, 4.0])))


@pytest.mark.skipif(not TRACES.exists(), reason="the sessions are not kept with the code")
def test_the_kept_fit_is_the_sessions_fit() -> None:
    assert asdict(fit(read_sessions(TRACES))) == pytest.approx(asdict(fitted()))


def test_draws_follow_the_fit() -> None:
    kept = fitted()
    plain, pareto = draw("lognormal", 20_000, 1, kept), draw("pareto", 20_000, 1, kept)
    assert np.median(plain.durations_us) / 1e6 == pytest.approx(math.exp(kept.log_mean), rel=0.04)
    median_s = kept.pareto_scale_s * (2 ** (1 / kept.pareto_shape) - 1)
    assert np.median(pareto.durations_us) / 1e6 == pytest.approx(median_s, rel=0.04)
    assert plain.longest_s == LIMIT_S
    # A copula of 0.6 makes ranks correlate by 6 / pi asin(0.6 / 2) = 0.582.
    assert np.corrcoef(plain.hardness, plain.length)[0, 1] == pytest.approx(0.582, abs=0.02)
    group = draw("lognormal_group8", 20_000, 1, kept)
    # Were they independent, the longest of eight would lie below one's median once in 2^8; they share a difficulty.
    assert np.mean(np.array(group.durations_us) / 1e6 > math.exp(kept.log_mean)) > 0.9
    assert GROUP == 8
    assert draw("narrow", 50, 7, kept).durations_us == draw("narrow", 50, 7, kept).durations_us
    with pytest.raises(ValueError, match="regime"):
        draw("uniform", 5, 1, kept)


def test_chance_divergence() -> None:
    """Two items: alike in one case of five (ln 5), else two classes of five (ln 2.5). One item: ln 5."""
    assert chance_kl(1) == pytest.approx(math.log(5))
    assert chance_kl(2) == pytest.approx(0.2 * math.log(5) + 0.8 * math.log(2.5))
    assert chance_kl(2000) == pytest.approx(4 / (2 * 2000), rel=0.01)


def alike(count: int, seconds: float) -> Items:
    ranks = (np.arange(count) + 0.5) / count
    return Items([round(seconds * 1e6)] * count, seconds, seconds, ranks, ranks)


@pytest.mark.parametrize("policy", ["strict_fifo", "windowed_fifo", "greedy", "version_window"])
def test_when_all_take_as_long_every_policy_is_the_same(policy: str) -> None:
    """Four engines, 8 s each: half an item a second. A batch of two trains in 0.8 * 2 * 8 / 4 = 3.2 s of every 4 s."""
    case = Case("rolling", policy, 4, 2, 4, "narrow")
    found = run(case, alike(400, 8.0), 64)
    assert found.items_per_s == pytest.approx(0.5)
    assert found.trainer_idle_share == pytest.approx(0.2)
    assert (found.hol_stall_s, found.dropped_share) == (0.0, 0.0)
    assert found.drift_w1_duration == pytest.approx(0.0)


def test_figures_by_hand() -> None:
    """C = 2, so batches of one; N = 2, one cohort of warm-up. Batches end at 2, 4, 8, 10: 2 items in 6 s, 3 s busy."""
    case = Case("cohort", "windowed_fifo", 1, 1, 2, "narrow")
    items = Items([1_000_000, 1_000_000, 3_000_000, 1_000_000], 1.5, 3.0, np.array([0.1, 0.3, 0.5, 0.9]), np.zeros(4))
    trace = Trace(
        taken=[0, 1, 3, 2],
        lags=[0, 0, 1, 3],
        dropped=[],
        closed_us=[1_000_000, 2_000_000, 6_000_000, 8_000_000],
        begun_us=[1_000_000, 3_000_000, 6_500_000, 8_500_000],
        done_us=[2_000_000, 4_000_000, 8_000_000, 10_000_000],
        stalled_s=[0.0, 1.0, 3.0, 6.0],
        windows=[1, 1, 2, 2],
    )
    found = figures(case, items, trace)
    assert found.items_per_s == pytest.approx(2 / 6)
    assert found.trainer_idle_share == pytest.approx(1 - 3 / 6)
    assert (found.hol_stall_s, found.hol_stall_share) == (2.5, pytest.approx(5 / 6))
    assert (found.lag_mean, found.window_items) == (2.0, 2.0)
    # A batch of one diverges by ln 5 whatever it holds, and so by chance.
    assert found.drift_kl_difficulty == pytest.approx(0.0)


def test_a_run_says_when_it_has_too_few_items() -> None:
    with pytest.raises(RuntimeError, match="too few items"):
        run(Case("rolling", "greedy", 4, 2, 4, "narrow"), alike(20, 8.0), 64)


def test_every_policy_is_in_the_grid() -> None:
    base = Case("cohort", "greedy", 128, 4, 32, "lognormal")
    names = [(case.policy, window_name(case)) for case in points(base)]
    assert names[0] == ("strict_fifo", "")
    assert ("version_window", "") in names
    windows = [name for policy, name in names if policy == "windowed_fifo"]
    assert windows == ["1", "0.05N", "0.1N", "b", "0.2N", "0.3N", "0.5N", "1N", "auto 0.02", "auto 0.05", "auto 0.2"]
    assert all(replace(case, mode="rolling").config(1.0) for case in points(base))
    assert set(REGIMES) == {"lognormal", "pareto", "lognormal_group8", "narrow"}


def test_an_interval_by_hand() -> None:
    """1, 2, 3: deviation 1, so 4.30 / sqrt 3."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.30 / math.sqrt(3))
    assert interval([1.0]) == 0.0


def test_the_rest_of_a_cohort_is_called_off() -> None:
    """Cohorts of four, one of each discarded: items 0, 4, 8, … take an hour, and three a cohort are enough."""
    durations_us = [3_600_000_000 if number % 4 == 0 else 1_000_000 + number for number in range(40)]
    case = Case("cohort", "greedy", 4, 1, 4, "narrow", discard_share=0.25)
    platform = Imagined(case.config(1e9), durations_us, 1, 0.25)
    state = State()
    last_s = max(taken.taken_at_s for taken, _ in what_if(platform, state))
    assert platform.trace.taken[:6] == [1, 2, 3, 5, 6, 7]
    assert platform.trace.dropped == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]
    assert last_s - START_US / 1e6 < 20.0  # a second a cohort, and the look-ahead waits for a batch in between
