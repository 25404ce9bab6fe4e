"""From a forest to attention calls: which slots attend to which, as few dense calls as possible.

A heavy path is contiguous, so it takes one causal call. Whatever hangs beside it at one branch point is contiguous too
and sees the path down to that point, so it takes one rectangle. A small thicket, whose calls would cost more than
their work, takes one masked block instead. The three kinds cover every ancestor exactly once. Where paths are so short
that even so there would be many calls, the forest is laid out in tiles instead (tiles.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from services.trainer.tree.forest import NO_SLOT, Forest, Ints, Segment
from services.trainer.tree.tiles import TILE_KEYS, Group, Tiles, tile_groups, tiles_of

BATCHED_BELOW = 512
"""Causal calls up to this length, in tokens, are stacked with others of the same length: above it nothing is gained."""

BLOCK_SLOTS = 256
"""A masked block has at most this many slots: its pairs grow with the square."""

PAIRS_A_CALL = 2048
"""What a call costs whatever its size, in query-key pairs; measured at 128 wide, less where models are wider."""

PAIRS_A_SHORT_CALL, CALLS_A_GROUP = 4096, 2
"""What a call costs where all of them are short, in pairs; and in calls, a group of tiles. Measured, with both that
follow, on 30 shapes at 2 heads over 1 and 8 over 2."""

TILE_PAIR, RECTANGLE_PAIR, CAUSAL_STEP = 0.7, 0.65, 32
"""A pair of a tile and of a rectangle, to one of a causal call; and how many queries such a call takes at a time."""


@dataclass(frozen=True, slots=True)
class Causal:
    """Heavy paths of one length: `starts` are their first slots."""

    starts: tuple[int, ...]
    length: int
    stride: int | None
    """The distance from one start to the next where it is always the same; None where it isn't."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Slots [query_start, query_end) all see all of [key_start, key_end)."""

    query_start: int
    query_end: int
    key_start: int
    key_end: int


@dataclass(frozen=True, slots=True)
class Block:
    """Slots [start, end): whole subtrees of one branch point, who see each other by `AttentionPlan.ends_S`."""

    start: int
    end: int


Calls = tuple[tuple[Causal, ...], tuple[Rectangle, ...], tuple[Block, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan:
    """Every call of a forest with `slots` slots.

    ends_S: one past the last slot below each slot, so that query q sees key k where k <= q < ends_S[k].
    roots_R: the slots that see themselves alone. tiles: instead of all other calls, where there are any. masks: what
    attention.py makes of blocks, kept for the layers that follow and gone with the plan; 256 numbers a slot at most.
    """

    slots: int
    causals: tuple[Causal, ...]
    rectangles: tuple[Rectangle, ...]
    blocks: tuple[Block, ...]
    ends_S: Ints
    roots_R: Ints
    tiles: Tiles | None = None
    masks: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)

    @property
    def scores(self) -> int:
        """Query-key pairs that see each other: what theory counts."""
        return int((self.ends_S - np.arange(self.slots)).sum())

    @property
    def calls(self) -> int:
        """Calls of one layer and direction; a group of tiles is as many as it takes the time of."""
        of_tiles = 0 if self.tiles is None else len(self.tiles.groups) * CALLS_A_GROUP
        return len(self.causals) + len(self.rectangles) + len(self.blocks) + of_tiles


def plan_attention(forest: Forest, pairs_a_call: int = PAIRS_A_CALL) -> AttentionPlan:
    """The calls for ancestors-only attention over the forest; no blocks where a call costs nothing."""
    ends = np.array([segment.subtree_end for segment in forest.segments], np.int64)
    ends_S = np.repeat(ends, [segment.end - segment.start for segment in forest.segments])
    planner = _Planner(forest.segments, ends_S, pairs_a_call)
    planner.walk()
    # By depth, since a piece of a cut forest hangs below slots that aren't in it.
    roots_R = np.array([segment.start for segment in forest.segments if segment.depth == 0], np.int64)
    calls: Calls = (stacked(planner.paths), tuple(planner.rectangles), tuple(planner.blocks))
    groups = in_tiles(calls, forest.depths_S) if pairs_a_call else ()
    if groups:
        return AttentionPlan(len(ends_S), (), (), (), ends_S, roots_R, tiles_of(forest, ends_S, groups))
    return AttentionPlan(len(ends_S), *calls, ends_S, roots_R)


def in_tiles(calls: Calls, depths_S: Ints) -> tuple[Group, ...]:
    """Tiles for slots of these depths where they cost less than the calls; else none."""
    if not len(depths_S) or int(depths_S.max()) >= TILE_KEYS:
        return ()
    groups = tile_groups(depths_S)
    pairs = TILE_PAIR * sum(group.pairs for group in groups)
    return groups if pairs + CALLS_A_GROUP * PAIRS_A_SHORT_CALL * len(groups) < _pairs_of(calls) else ()


def _pairs_of(calls: Calls) -> float:
    """What calls cost, in query-key pairs of a causal one, whose kernel skips what lies above its diagonal."""
    causals, rectangles, blocks = calls
    # A stack at uneven distances is copied, there and back.
    count = len(rectangles) + len(blocks) + sum(1 if call.stride else 2 for call in causals)
    above = sum(len(call.starts) * call.length * (call.length + CAUSAL_STEP) / 2 for call in causals)
    masked = sum((block.end - block.start) ** 2 for block in blocks)
    sides = sum((r.query_end - r.query_start) * (r.key_end - r.key_start) for r in rectangles)
    return above + masked + RECTANGLE_PAIR * sides + PAIRS_A_SHORT_CALL * count


class _Planner:
    """Goes down every heavy path once, and leaves what hangs beside it for later."""

    def __init__(self, segments: Sequence[Segment], ends_S: Ints, pairs_a_call: int) -> None:
        self._pairs_a_call = pairs_a_call
        self._segments = segments
        self._pairs = _running(ends_S - np.arange(len(ends_S)))
        self._starts = np.array([segment.start for segment in segments], np.int64)
        beside = [s.heavy != NO_SLOT and segments[s.heavy].subtree_end < s.subtree_end for s in segments]
        heavy = np.zeros(len(segments), np.int64)
        heavy[[segment.heavy for segment in segments if segment.heavy != NO_SLOT]] = 1
        self._rectangles_before = _running(np.array(beside, np.int64))
        self._paths_before = _running(1 - heavy)
        self._later: list[int] = []
        self.paths: list[tuple[int, int]] = []
        self.rectangles: list[Rectangle] = []
        self.blocks: list[Block] = []

    def walk(self) -> None:
        """All calls."""
        if self._segments:
            self._siblings(0, self._segments[-1].end)
        while self._later:
            self._path(self._later.pop())

    def _path(self, rank: int) -> None:
        segment, start = self._segments[rank], self._segments[rank].start
        while segment.heavy != NO_SLOT:
            if self._gains(segment.end, segment.subtree_end):
                self.rectangles.append(Rectangle(segment.end, segment.subtree_end, start, segment.end))
                self.blocks.append(Block(segment.end, segment.subtree_end))
                break
            heavy = self._segments[segment.heavy]
            if heavy.subtree_end < segment.subtree_end:
                self.rectangles.append(Rectangle(heavy.subtree_end, segment.subtree_end, start, segment.end))
                self._siblings(heavy.subtree_end, segment.subtree_end)
            segment = heavy
        self.paths.append((start, segment.end - start))

    def _siblings(self, start: int, end: int) -> None:
        """Subtrees beside one another in slots [start, end): each a block, part of one, or left for later."""
        open_until = -1
        while start < end:
            rank = self._rank(start)
            after = self._segments[rank].subtree_end
            if not self._gains(start, after):
                self._later.append(rank)
            elif open_until == start and self._joins(self.blocks[-1], after):
                self.blocks[-1] = Block(self.blocks[-1].start, after)
                open_until = after
            else:
                self.blocks.append(Block(start, after))
                open_until = after
            start = after

    def _gains(self, start: int, end: int) -> bool:
        """Whether one masked block beats the calls of the subtrees in slots [start, end)."""
        slots = end - start
        if slots > BLOCK_SLOTS:
            return False
        first, last = self._rank(start), self._rank(end)
        # Paths of one length share a call, so a path is counted as half of one.
        calls = int(self._rectangles_before[last] - self._rectangles_before[first])
        calls_saved = calls + (int(self._paths_before[last] - self._paths_before[first]) - 1) / 2 - 0.5
        wasted = slots * slots - int(self._pairs[end] - self._pairs[start])
        return calls_saved * self._pairs_a_call > wasted

    def _joins(self, block: Block, end: int) -> bool:
        before, more = block.end - block.start, end - block.end
        return before + more <= BLOCK_SLOTS and 2 * before * more < self._pairs_a_call

    def _rank(self, slot: int) -> int:
        return int(np.searchsorted(self._starts, slot))


def _running(values: Ints) -> Ints:
    """Sums of the first n values, for every n."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])


def stacked(paths: Sequence[tuple[int, int]]) -> tuple[Causal, ...]:
    """Causal calls for paths of (first slot, length): short ones of one length in one call."""
    alone: list[Causal] = []
    by_length: dict[int, list[int]] = {}
    for start, length in sorted(paths):
        if length <= BATCHED_BELOW:
            by_length.setdefault(length, []).append(start)
        else:
            alone.append(Causal((start,), length, length))
    return (*alone, *(Causal(tuple(starts), length, _stride(starts, length)) for length, starts in by_length.items()))


def _stride(starts: Sequence[int], length: int) -> int | None:
    steps = {after - before for before, after in pairwise(starts)} or {length}
    return steps.pop() if len(steps) == 1 else None
