"""Which cases are simulated, and the rows that come of them. Every row is a mean over seeds with its 95% interval;
a throughput is compared with greedy's on the same items. Refuses to look at a clock: time is simulated.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from loadtests.scheduler.durations import REGIMES, draw
from loadtests.scheduler.measure import Case, Figures, run
from loadtests.scheduler.traces import Fit

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
DRIFT_BOUNDS = (0.02, 0.05, 0.2)
MODES = ("rolling", "cohort")
# Two-sided 95% of Student's t by degrees of freedom.
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}


@dataclass(frozen=True, slots=True)
class Series:
    """Cases that share engines, queue, durations and variant, hence one greedy; `rounds`: measured items over C."""

    base: Case
    points: tuple[Case, ...]
    seeds: int
    rounds: int


Row = dict[str, str | float | int | bool]


def points(base: Case, shares: Sequence[float] = SHARES, bounds: Sequence[float] = DRIFT_BOUNDS) -> tuple[Case, ...]:
    """Every policy: strict FIFO (W = 1), windows by share of N, W = b (a batch), auto by bound, version window."""
    windowed = replace(base, policy="windowed_fifo")
    queue_items = base.queue_items
    widths = sorted({1, base.batch_items, *(max(1, round(share * queue_items)) for share in shares)})
    return (
        replace(base, policy="strict_fifo", window_items=1),
        *(replace(windowed, window_items=width) for width in widths),
        *(replace(windowed, window_items=0, drift_bound=bound) for bound in bounds),
        replace(base, policy="version_window", window_items=queue_items),
    )


def few(base: Case) -> tuple[Case, ...]:
    """What decides: 0.3 N, a batch, the whole queue, and auto."""
    return tuple(
        case for case in points(base, (0.3, 1.0), (0.05,)) if case.policy == "windowed_fifo" and case.window_items != 1
    )


def whole_study() -> Iterator[Series]:
    """The default grid, about five minutes on one core."""
    for mode in MODES:
        for regime in REGIMES:
            for ratio in (1, 2, 4, 8) if regime in ("lognormal", "pareto") else (1, 8):
                base = Case(mode, "greedy", ratio * 32, ratio, 32, regime)
                yield Series(base, points(base), 4, 30)
        for engines, seeds, rounds in ((10, 6, 60), (100, 2, 30), (1000, 1, 12)):
            base = Case(mode, "greedy", 4 * engines, 4, engines, "lognormal")
            yield Series(base, points(base) if engines < 1000 else few(base), seeds, rounds)
        base = Case(mode, "greedy", 10_000, 1, 10_000, "lognormal")
        yield Series(base, few(base), 1, 2)
    yield from variants()


def variants() -> Iterator[Series]:
    """Deadlines that cut the longest, cohorts whose rest is discarded, and slower or faster trainers."""
    for mode in MODES:
        base = Case(mode, "greedy", 4 * 32, 4, 32, "lognormal")
        for changed in (replace(base, deadline_quantile=0.95), replace(base, load=0.4), replace(base, load=1.2)):
            yield Series(changed, few(changed), 4, 30)
    cohort = Case("cohort", "greedy", 4 * 32, 4, 32, "lognormal", discard_share=0.25)
    yield Series(cohort, few(cohort), 4, 30)


def quick_study() -> Iterator[Series]:
    """A grid small enough for a test."""
    for mode in MODES:
        base = Case(mode, "greedy", 4 * 16, 4, 16, "lognormal")
        yield Series(base, few(base), 2, 16)


def rows(series: Series, fit: Fit) -> list[Row]:
    """Greedy's row, then one a point."""
    base = series.base
    needed = base.warm_up_items + series.rounds * base.engines + 2 * base.queue_items
    found: dict[Case, list[tuple[Figures, float]]] = {}
    longest: list[float] = []
    for seed in range(series.seeds):
        items = draw(base.regime, 2 * needed + 4 * base.queue_items + 20 * base.engines, seed, fit)
        longest.append(items.longest_s / items.mean_s)
        greedy_per_s = 0.0
        for case in (base, *series.points):
            measured = run(case, items, _measured(series))
            greedy_per_s = greedy_per_s or measured.items_per_s
            found.setdefault(case, []).append((measured, measured.items_per_s / greedy_per_s))
    return [_row(case, seen, float(np.mean(longest))) for case, seen in found.items()]


def _measured(series: Series) -> int:
    """Whole cohorts, so that no figure depends on where in a cohort it ends."""
    items = series.rounds * series.base.engines + series.base.queue_items
    return -(-items // series.base.queue_items) * series.base.queue_items


def _row(case: Case, seen: Sequence[tuple[Figures, float]], longest: float) -> Row:
    measured = [asdict(figures) for figures, _ in seen]
    means = {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}
    ratios = [ratio for _, ratio in seen]
    return {
        "mode": case.mode,
        "policy": case.policy,
        "window": window_name(case),
        "window_share": means["window_items"] / case.queue_items,
        "queue_over_inflight": case.ratio,
        "engines": case.engines,
        "batch_items": case.batch_items,
        "durations": case.regime,
        "longest_over_mean": longest,
        "deadline_quantile": case.deadline_quantile,
        "discard_share": case.discard_share,
        "trainer_load": case.load,
        "seeds": len(seen),
        "throughput_vs_greedy": float(np.mean(ratios)),
        "throughput_ci95": interval(ratios),
        **{name: means[name] for name in measured[0] if name not in ("items_per_s", "window_items")},
        "drift_kl_difficulty_ci95": interval([one["drift_kl_difficulty"] for one in measured]),
        "drift_kl_duration_ci95": interval([one["drift_kl_duration"] for one in measured]),
    }


def window_name(case: Case) -> str:
    """What the window is called in tables."""
    if case.auto:
        return f"auto {case.drift_bound:g}"
    if case.policy != "windowed_fifo":
        return ""
    if case.window_items == 1:
        return "1"
    named = {max(1, round(share * case.queue_items)): f"{share:g}N" for share in SHARES}
    return named.get(case.window_items, "b")


def interval(values: Sequence[float]) -> float:
    """Half of the 95% interval of the mean over seeds; 0 for a single one."""
    if len(values) < 2:
        return 0.0
    return _T95[len(values) - 1] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
