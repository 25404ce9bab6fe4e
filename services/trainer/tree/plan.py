"""From a forest to attention calls: which slots attend to which, as few dense calls as possible.

A heavy path is contiguous, so it takes one causal call. Whatever hangs beside it at one branch point is contiguous too
and sees the path down to that point, so it takes one rectangle. The two kinds cover every ancestor exactly once.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from services.trainer.tree.forest import NO_SLOT, Forest, Ints

BATCHED_BELOW = 512
"""Causal calls up to this length, in tokens, are stacked with others of the same length: above it nothing is gained."""


@dataclass(frozen=True, slots=True)
class Causal:
    """Heavy paths of one length: `starts` are their first slots."""

    starts: tuple[int, ...]
    length: int

    @property
    def stride(self) -> int | None:
        """The distance from one start to the next where it is always the same; None where it isn't."""
        steps = {after - before for before, after in pairwise(self.starts)} or {self.length}
        return steps.pop() if len(steps) == 1 else None


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Slots [query_start, query_end) all see all of [key_start, key_end)."""

    query_start: int
    query_end: int
    key_start: int
    key_end: int


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan:
    """Every causal call and every rectangle of a forest with `slots` slots.

    ends_S: one past the last slot below each slot, so that query q sees key k where k <= q < ends_S[k].
    """

    slots: int
    causals: tuple[Causal, ...]
    rectangles: tuple[Rectangle, ...]
    ends_S: Ints

    @property
    def scores(self) -> int:
        """Query-key pairs computed, with causal calls at half their square."""
        triangle = sum(len(call.starts) * call.length * (call.length + 1) // 2 for call in self.causals)
        return triangle + sum((r.query_end - r.query_start) * (r.key_end - r.key_start) for r in self.rectangles)


def plan_attention(forest: Forest) -> AttentionPlan:
    """The calls for ancestors-only attention over the forest."""
    chain_starts = _chain_starts(forest)
    lengths: dict[int, int] = {}
    for segment, start in zip(forest.segments, chain_starts, strict=True):
        lengths[start] = segment.end - start
    rectangles: list[Rectangle] = []
    for segment, start in zip(forest.segments, chain_starts, strict=True):
        if segment.heavy == NO_SLOT:
            continue
        beside = forest.segments[segment.heavy].subtree_end
        if beside < segment.subtree_end:
            rectangles.append(Rectangle(beside, segment.subtree_end, start, segment.end))
    ends = np.array([segment.subtree_end for segment in forest.segments], np.int64)
    ends_S = np.repeat(ends, [segment.end - segment.start for segment in forest.segments])
    return AttentionPlan(len(forest.token_ids_S), _causals(lengths), tuple(rectangles), ends_S)


def _chain_starts(forest: Forest) -> list[int]:
    """For every segment the first slot of the heavy path that it belongs to."""
    starts: list[int] = []
    for rank, segment in enumerate(forest.segments):
        above = forest.segments[segment.parent] if segment.parent != NO_SLOT else None
        starts.append(starts[segment.parent] if above is not None and above.heavy == rank else segment.start)
    return starts


def _causals(lengths: dict[int, int]) -> tuple[Causal, ...]:
    stacked: dict[int, list[int]] = {}
    alone: list[Causal] = []
    for start, length in lengths.items():
        if length <= BATCHED_BELOW:
            stacked.setdefault(length, []).append(start)
        else:
            alone.append(Causal((start,), length))
    return (*alone, *(Causal(tuple(starts), length) for length, starts in stacked.items()))
