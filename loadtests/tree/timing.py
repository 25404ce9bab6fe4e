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
class Rivals:
    """Ours, and, where it is compared too, merging whatever it costs."""

    ours: Callable[[], object]
    merged: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """How many pairs there are: `fewest` and whole rounds of the parts; more up to `most` while they take less than
    `seconds` in all."""

    fewest: int
    most: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`speedup`: median of the pairs' ratios by processor time; `low`, `high`: their extremes; `wall`: the median by
    wall clock; seconds of the whole baseline (mean of the rounds) and of ours (median). `against_merged`: median of
    merged's time over ours, where that was asked for."""

    speedup: float
    low: float
    high: float
    wall: float
    baseline_s: float
    ours_s: float
    pairs: int
    against_merged: float | None


def timed(run: Callable[[], object]) -> Seconds:
    """One run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)


def compare(parts: Sequence[Part], rivals: Rivals, pairs: Pairs) -> Comparison:
    """Every part equally often, ours beside each; which comes first alternates. Both are warm when it starts."""
    rivals.ours()
    cpu, wall, ours_s, against = list[float](), list[float](), list[float](), list[float]()
    spent_s = baseline_s = 0.0
    while len(cpu) < pairs.fewest or len(cpu) % len(parts) or (len(cpu) < pairs.most and spent_s < pairs.seconds):
        part = parts[len(cpu) % len(parts)]
        runs = [rivals.ours, part.run, *([rivals.merged] if rivals.merged else [])]
        order = range(len(runs)) if len(cpu) % 2 else reversed(range(len(runs)))
        taken = {index: timed(runs[index]) for index in order}
        mine, theirs = taken[0], taken[1]
        cpu.append(theirs.cpu / part.share / mine.cpu)
        wall.append(theirs.wall / part.share / mine.wall)
        ours_s.append(mine.cpu)
        against += [taken[2].cpu / mine.cpu] if rivals.merged else []
        baseline_s += theirs.cpu
        spent_s += sum(seconds.cpu for seconds in taken.values())
    middle, rounds = statistics.median, len(cpu) / len(parts)
    return Comparison(
        speedup=middle(cpu),
        low=min(cpu),
        high=max(cpu),
        wall=middle(wall),
        baseline_s=baseline_s / rounds,
        ours_s=middle(ours_s),
        pairs=len(cpu),
        against_merged=middle(against) if against else None,
    )
