"""A forest cut along the tree into pieces that are computed one after the other, so that memory is that of a path.

A spine piece is a stretch of a heavy path: it is kept, with its keys and values, while anything below it is computed.
A bundle is a run of whole subtrees: computed forwards and backwards at once. Every piece sees, besides itself, only
the spine pieces that are kept when it comes, which lie end to end from a root. It refuses a budget below one token.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from services.trainer.tree.forest import NO_SLOT, Forest, Segment

SPINE_SHARE = 16
"""A spine piece is at most this part of the longest path: what is kept beyond need is at most one such piece."""

SPINE_TOKENS = 2048
"""Shorter spine pieces than this, in tokens, cost time in calls; paths so short are no trouble to memory."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Slots [start, end) of a piece, counted from the piece's first, see all kept slots of depth below `depth`."""

    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Slots [start, end) of the forest, and the segments [first, last) that they lie in.

    `release`: how many kept spine pieces, the newest first, nothing more depends on once this piece comes.
    """

    start: int
    end: int
    first: int
    last: int
    release: int
    hangs: tuple[Hang, ...]
    spine: bool
    depth: int

    @property
    def slots(self) -> int:
        """Slots of the piece."""
        return self.end - self.start


def partition(forest: Forest, budget_tokens: int) -> tuple[Piece, ...]:
    """Pieces in the order of computation, which is the order of slots; one piece where the whole fits the budget.

    No piece is longer than the budget. Spine pieces kept and the piece at work are together at most
    max(budget, longest path) and two spine pieces more. Raises ValueError for a budget below 1.
    """
    if budget_tokens < 1:
        raise ValueError(f"budget_tokens: given {budget_tokens}; allowed 1 or more")
    return tuple(_Cutter(forest, budget_tokens).pieces())


def piece_forest(forest: Forest, piece: Piece) -> Forest:
    """The piece as a forest of its own: what hangs outside is a root, depths stay, and there are no samples."""
    here = slice(piece.start, piece.end)
    parents_S = forest.parents_S[here] - piece.start
    parents_S = np.where(parents_S < 0, NO_SLOT, parents_S)
    if piece.spine:
        segments = (Segment(0, piece.slots, piece.depth, NO_SLOT, NO_SLOT, piece.slots),)
    else:
        segments = tuple(_moved(segment, piece) for segment in forest.segments[piece.first : piece.last])
    nothing = np.empty(0, np.int64)
    return Forest(forest.token_ids_S[here], forest.depths_S[here], parents_S, nothing, np.zeros(1, np.int64), segments)


def _moved(segment: Segment, piece: Piece) -> Segment:
    return Segment(
        segment.start - piece.start,
        segment.end - piece.start,
        segment.depth,
        segment.parent - piece.first if segment.parent >= piece.first else NO_SLOT,
        segment.heavy - piece.first if segment.heavy != NO_SLOT else NO_SLOT,
        segment.subtree_end - piece.start,
    )


@dataclass(slots=True)
class _Cutter:
    """One walk over the segments, in order; `kept`: depths [start, end) of the spine pieces kept."""

    forest: Forest
    budget: int
    kept: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    limit: int = 0
    cap: int = 0

    def pieces(self) -> Iterator[Piece]:
        longest = int(self.forest.depths_S.max(initial=-1)) + 1
        self.limit = max(self.budget, longest)
        self.cap = min(self.budget, max(longest // SPINE_SHARE, SPINE_TOKENS))
        segments, rank = self.forest.segments, 0
        while rank < len(segments):
            released = self._release(segments[rank].depth)
            allowed = self._allowed()
            if _size(segments[rank]) <= allowed:
                end = self._bundle_end(rank, allowed)
                yield self._bundle(rank, end, released)
                rank = end
            else:
                end = rank + 1
                while segments[end - 1].heavy == end:
                    end += 1
                yield from self._spine(rank, end, released)
                rank = end

    def _release(self, depth: int) -> int:
        before = len(self.kept)
        while self.kept and self.kept[-1][0] >= depth:
            self.kept.pop()
        return before - len(self.kept)

    def _allowed(self) -> int:
        live = self.kept[-1][1] if self.kept else 0
        return min(self.budget, max(self.limit - live, self.cap))

    def _bundle_end(self, rank: int, allowed: int) -> int:
        """One past the last segment of as many following subtrees as fit."""
        segments, first = self.forest.segments, self.forest.segments[rank].start
        end = rank
        while end < len(segments) and segments[end].subtree_end - first <= allowed:
            limit = segments[end].subtree_end
            end += 1
            while end < len(segments) and segments[end].start < limit:
                end += 1
        return end

    def _bundle(self, rank: int, end: int, released: int) -> Piece:
        segments, first = self.forest.segments, self.forest.segments[rank].start
        hangs: list[Hang] = []
        for segment in segments[rank:end]:
            if segment.parent >= rank:
                continue
            # Siblings at one branch point lie next to each other and see the same.
            start = segment.start - first
            if hangs and hangs[-1].depth == segment.depth:
                start = hangs.pop().start
            hangs.append(Hang(start, segment.subtree_end - first, segment.depth))
        return Piece(first, segments[end - 1].end, rank, end, released, tuple(hangs), False, segments[rank].depth)

    def _spine(self, rank: int, end: int, released: int) -> Iterator[Piece]:
        """Pieces of a heavy path, cut where a subtree hangs that will be cut itself: it needs all above, none below."""
        segments = self.forest.segments
        top = segments[rank]
        forced = [segments[end - 1].end]
        for above in range(rank, end - 1):
            if self._big_beside(above, end):
                forced.append(segments[above].end)
        start = top.start
        for cut in sorted(forced):
            while start < cut:
                stop = min(cut, start + self.cap)
                depth = top.depth + start - top.start
                hang = (Hang(0, stop - start, depth),)
                yield Piece(start, stop, rank, end, released, hang, True, depth)
                self.kept.append((depth, depth + stop - start))
                start, released = stop, 0

    def _big_beside(self, above: int, end: int) -> bool:
        """Whether a light child of a segment has more slots than a spine piece."""
        segments = self.forest.segments
        start = segments[segments[above].heavy].subtree_end
        # Starts of segments are sorted, and siblings follow one another.
        child = self._rank_at(start, end)
        while child < len(segments) and segments[child].parent == above:
            if _size(segments[child]) > self.cap:
                return True
            child = self._rank_at(segments[child].subtree_end, child + 1)
        return False

    def _rank_at(self, slot: int, low: int) -> int:
        """The rank of the segment that starts at a slot; the number of segments when none does."""
        segments, high = self.forest.segments, len(self.forest.segments)
        while low < high:
            middle = (low + high) // 2
            if segments[middle].start < slot:
                low = middle + 1
            else:
                high = middle
        return low


def _size(segment: Segment) -> int:
    return segment.subtree_end - segment.start
