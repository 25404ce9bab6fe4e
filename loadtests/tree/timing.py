"""Times of ours and of a baseline in interleaved pairs.

A baseline that costs many times as much is dealt out over the pairs in parts of equal make-up, so that all of it is run
and ours is timed beside each part. Nothing is scaled up from a sample: after one round every sample has been run.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of this process's processor, and of the wall clock."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a baseline: what it runs, and its share of the baseline's operations."""

    run: Callable[[], object]
    share: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`speedup`: median of the pairs' ratios by processor time; `low`, `high`: their extremes; `wall`: the median by
    wall clock; seconds of the whole baseline and of ours (median)."""

    speedup: float
    low: float
    high: float
    wall: float
    baseline_s: float
    ours_s: float
    pairs: int


def timed(run: Callable[[], object]) -> Seconds:
    """One run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)


def compare(parts: Sequence[Part], ours: Callable[[], object], rounds: int) -> Comparison:
    """Every part `rounds` times, ours beside each; which comes first alternates. Both are warm when it starts."""
    ours()
    cpu, wall, ours_s, baseline_s = list[float](), list[float](), list[float](), 0.0
    for index in range(rounds * len(parts)):
        part = parts[index % len(parts)]
        if index % 2:
            mine, theirs = timed(ours), timed(part.run)
        else:
            theirs, mine = timed(part.run), timed(ours)
        cpu.append(theirs.cpu / part.share / mine.cpu)
        wall.append(theirs.wall / part.share / mine.wall)
        ours_s.append(mine.cpu)
        baseline_s += theirs.cpu / rounds
    middle = statistics.median
    return Comparison(middle(cpu), min(cpu), max(cpu), middle(wall), baseline_s, middle(ours_s), len(cpu))
