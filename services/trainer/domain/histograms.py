"""Histograms over fixed buckets: they add up, and quantiles can be read off them.

It refuses to grow: the buckets are known beforehand, the outermost are open.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATIO_EDGES = (
    0.1,
    0.2,
    0.5,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    1.0,
    1.01,
    1.02,
    1.05,
    1.1,
    1.2,
    1.3,
    1.5,
    2.0,
    5.0,
    10.0,
)
"""Inner edges of the importance ratio's buckets: fine around 1, where it should be."""

NORM_EDGES = tuple(10.0**exponent for exponent in range(-8, 5))
"""Inner edges of the buckets of gradient norms, a decade each."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` values lie in [edges[i-1], edges[i]); the first and the last bucket are open."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    squares: float
    low: float
    high: float

    @staticmethod
    def empty(edges: Sequence[float]) -> "Histogram":
        """No value yet."""
        return Histogram(tuple(edges), (0,) * (len(edges) + 1), 0.0, 0.0, float("inf"), float("-inf"))

    @staticmethod
    def of(edges: Sequence[float], values: NDArray[np.float64]) -> "Histogram":
        """Of some finite values."""
        if not len(values):
            return Histogram.empty(edges)
        counts = np.bincount(np.searchsorted(np.asarray(edges), values, side="right"), minlength=len(edges) + 1)
        return Histogram(
            tuple(edges),
            tuple(int(count) for count in counts),
            float(values.sum()),
            float((values**2).sum()),
            float(values.min()),
            float(values.max()),
        )

    def plus(self, other: "Histogram") -> "Histogram":
        """Both together; the edges must be equal (ValueError)."""
        if self.edges != other.edges:
            raise ValueError("histograms with other edges can't be added")
        return Histogram(
            self.edges,
            tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True)),
            self.total + other.total,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """The value below which a share of all lies, linear within a bucket; 0 of nothing."""
        if not self.count:
            return 0.0
        wanted, below = share * self.count, 0
        bounds = (self.low, *(min(max(edge, self.low), self.high) for edge in self.edges), self.high)
        for count, left, right in zip(self.counts, bounds, bounds[1:], strict=False):
            if count and below + count >= wanted:
                return left + (right - left) * (wanted - below) / count
            below += count
        return self.high
