"""Items to simulate: how long each takes, and how hard it is. Every regime is drawn from a seed; nothing is read.

Durations are cut at LIMIT_S, since an agent has a budget. Difficulty is uniform on [0, 1] and tied to duration by a
normal copula with correlation COUPLING: the sessions hold no difficulty, so this number is an assumption; drift of
difficulty goes with it, drift of durations doesn't.
"""

import math
from dataclasses import dataclass

import numpy as np

from loadtests.scheduler.traces import Fit

LIMIT_S = 4 * 3600.0
COUPLING = 0.6
GROUP = 8
NARROW_DEVIATION = 0.5
REGIMES = ("lognormal", "pareto", "lognormal_group8", "narrow")


@dataclass(frozen=True, slots=True)
class Items:
    """Durations in whole microseconds; `hardness` and `length` are ranks in [0, 1] within the whole distribution."""

    durations_us: list[int]
    mean_s: float
    longest_s: float
    hardness: np.ndarray
    length: np.ndarray


def draw(regime: str, count: int, seed: int, fit: Fit) -> Items:
    """Items of a regime. lognormal, pareto: the fits. lognormal_group8: an item is a group whose eight members all run
    at once, so it takes as long as its longest. narrow: the same median, deviation of ln(s) 0.5. Raises ValueError.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime: given {regime!r}; allowed {', '.join(REGIMES)}")
    rng = np.random.default_rng([seed, REGIMES.index(regime)])
    hard = rng.standard_normal(count)
    luck = rng.standard_normal((count, GROUP if regime == "lognormal_group8" else 1))
    mixed = COUPLING * hard[:, None] + math.sqrt(1.0 - COUPLING**2) * luck
    rank = normal_rank(mixed.max(axis=1))
    durations_s = _quantile(regime, mixed.max(axis=1), rank, fit)
    durations_s = np.clip(durations_s, 1e-6, LIMIT_S)
    return Items(
        durations_us=np.round(durations_s * 1e6).astype(np.int64).tolist(),
        mean_s=float(durations_s.mean()),
        longest_s=float(durations_s.max()),
        hardness=normal_rank(hard),
        length=np.argsort(np.argsort(durations_s)) / count,
    )


def _quantile(regime: str, normal: np.ndarray, rank: np.ndarray, fit: Fit) -> np.ndarray:
    if regime == "pareto":
        return fit.pareto_scale_s * ((1.0 - rank) ** (-1.0 / fit.pareto_shape) - 1.0)
    deviation = NARROW_DEVIATION if regime == "narrow" else fit.log_deviation
    return np.exp(fit.log_mean + deviation * normal)


def normal_rank(values: np.ndarray) -> np.ndarray:
    """Share of a standard normal below each value, short of 1."""
    below = 0.5 * np.array([math.erfc(-value / math.sqrt(2.0)) for value in values])
    return np.minimum(below, 1.0 - 1e-12)
