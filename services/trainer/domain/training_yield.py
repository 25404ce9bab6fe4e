"""J, the effective training yield: throughput times sample efficiency, with factors and conditions (DESIGN 1).

It refuses to judge on fewer than three steps: slope and interval are 0 until then.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_STEPS = 20
"""Steps that slope and throughput look back over."""

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One completed step: mean training reward, tokens it trained, and its end in seconds since the first policy."""

    reward_mean: float
    trained_tokens: int
    ended_s: float
    grad_noise: float


@dataclass(frozen=True, slots=True)
class Yield:
    """`efficiency`: reward gained per million trained tokens, +- `efficiency_95` (half width of its 95% interval)."""

    tokens_per_s: float
    efficiency: float
    efficiency_95: float
    noise_bounded: bool
    not_falling: bool

    @property
    def j(self) -> float:
        """Trained tokens a second times reward gained per million trained tokens."""
        return self.tokens_per_s * self.efficiency


def measure(points: Sequence[StepPoint], noise_bound: float) -> Yield:
    """J over the last steps; `points` in order, from the run's first step."""
    window = points[-WINDOW_STEPS:]
    before_s = points[-WINDOW_STEPS - 1].ended_s if len(points) > WINDOW_STEPS else 0.0
    wall_s = window[-1].ended_s - before_s if window else 0.0
    tokens_per_s = sum(p.trained_tokens for p in window) / wall_s if wall_s > 0 else 0.0
    slope, half_width = _slope(window)
    noise = sum(p.grad_noise for p in window) / len(window) if window else 0.0
    return Yield(tokens_per_s, slope, half_width, noise <= noise_bound, slope + half_width >= 0)


def _slope(points: Sequence[StepPoint]) -> tuple[float, float]:
    """Least squares slope of reward over millions of trained tokens, and the half width of its 95% interval."""
    n = len(points)
    if n < 3:
        return 0.0, 0.0
    xs: list[float] = []
    total = 0.0
    for point in points:
        total += point.trained_tokens / 1e6
        xs.append(total)
    ys = [point.reward_mean for point in points]
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread <= 0:
        return 0.0, 0.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    residual = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, NORMAL_95 * math.sqrt(residual / (n - 2) / spread)
