"""Samples that share prefixes, merged into one forest of token slots.

Identity is by token ids. Slots stand in depth-first order, the child with the longest path first, so that the heavy
path below any slot is contiguous. It refuses empty input; empty samples are kept and own no slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of slots without a branch inside: slots [start, end), depths from `depth` on, `parent` the segment above.

    `subtree_end`: one past the last slot below. `heavy`: the child on the longest path, whose slots follow at `end`.
    """

    start: int
    end: int
    depth: int
    parent: int
    heavy: int
    subtree_end: int


@dataclass(frozen=True, slots=True)
class Forest:
    """S slots; N tokens of all samples laid end to end, in the order in which the samples came.

    token_ids_S; depths_S: position in the path; parents_S: the slot of the token before, or -1 at a root;
    slots_N: the slot of every sample token; offsets: sample i owns slots_N[offsets[i]:offsets[i + 1]].
    """

    token_ids_S: Ints
    depths_S: Ints
    parents_S: Ints
    slots_N: Ints
    offsets: Ints
    segments: tuple[Segment, ...]

    @property
    def sharing(self) -> float:
        """Sample tokens a slot: how often the average slot is used. 1.0 where nothing is shared."""
        return len(self.slots_N) / max(1, len(self.token_ids_S))

    def sample_slots(self, sample: int) -> Ints:
        """The slots of one sample's tokens, in order."""
        return self.slots_N[self.offsets[sample] : self.offsets[sample + 1]]


@dataclass(slots=True)
class _Draft:
    """A segment while the tree grows: tokens [depth, end) of `sample`."""

    sample: int
    depth: int
    end: int
    parent: int
    children: list[int]
    reach: int = 0
    start: int = 0


def build_forest(samples: Sequence[Ints], merge: bool = True) -> Forest:
    """Merge samples, each a vector of token ids in [0, 2^31). Raises ValueError when there are none.

    Without `merge` every sample is a tree of its own: the samples laid end to end, with nothing padded.
    """
    if not samples:
        raise ValueError("samples: none given; at least one is wanted")
    drafts, ends = _grow(samples) if merge else _apart(samples)
    roots = [index for index, draft in enumerate(drafts) if draft.parent == NO_SLOT]
    ranked = _rank(drafts, roots)
    return _lay_out(samples, drafts, ranked, ends)


def _apart(samples: Sequence[Ints]) -> tuple[list[_Draft], list[int]]:
    filled = [index for index, sample in enumerate(samples) if len(sample)]
    ends = [NO_SLOT] * len(samples)
    for place, index in enumerate(filled):
        ends[index] = place
    return [_Draft(index, 0, len(samples[index]), NO_SLOT, []) for index in filled], ends


def _grow(samples: Sequence[Ints]) -> tuple[list[_Draft], list[int]]:
    """Draft segments in sorted order, and for every sample the segment in which it ends (-1 when it is empty)."""
    # Big-endian bytes compare as the token vectors do, so the standard sort puts sharers next to each other.
    keys = [np.asarray(sample, dtype=">u4").tobytes() for sample in samples]
    order = sorted(range(len(samples)), key=keys.__getitem__)
    drafts: list[_Draft] = []
    ends = [NO_SLOT] * len(samples)
    path: list[int] = []
    previous: Ints = np.empty(0, np.int64)
    for sample in order:
        tokens = np.asarray(samples[sample])
        shared = _common_prefix(previous, tokens)
        while path and drafts[path[-1]].depth >= shared:
            path.pop()
        if path and drafts[path[-1]].end > shared:
            _split(drafts, path[-1], shared)
        if len(tokens) > shared:
            parent = path[-1] if path else NO_SLOT
            drafts.append(_Draft(sample, shared, len(tokens), parent, []))
            if parent != NO_SLOT:
                drafts[parent].children.append(len(drafts) - 1)
            path.append(len(drafts) - 1)
        ends[sample] = path[-1] if path else NO_SLOT
        previous = tokens
    return drafts, _settle(drafts, ends, samples)


def _split(drafts: list[_Draft], index: int, depth: int) -> None:
    """Cut a segment at `depth`: it keeps its upper part, and its lower part with its children moves below."""
    upper = drafts[index]
    lower = _Draft(upper.sample, depth, upper.end, index, upper.children)
    for child in lower.children:
        drafts[child].parent = len(drafts)
    upper.end, upper.children = depth, [len(drafts)]
    drafts.append(lower)


def _settle(drafts: list[_Draft], ends: list[int], samples: Sequence[Ints]) -> list[int]:
    """A sample whose last segment was cut afterwards ends in the lower part that carries its own tokens."""
    for sample, index in enumerate(ends):
        length = len(samples[sample])
        while index != NO_SLOT and drafts[index].end < length:
            depth = drafts[index].end
            token = samples[sample][depth]
            index = next(c for c in drafts[index].children if samples[drafts[c].sample][depth] == token)
        ends[sample] = index
    return ends


def _common_prefix(left: Ints, right: Ints) -> int:
    length = min(len(left), len(right))
    differs = np.flatnonzero(left[:length] != right[:length])
    return int(differs[0]) if len(differs) else length


def _rank(drafts: list[_Draft], roots: list[int]) -> list[int]:
    """Depth-first order with the longest path first; fills `reach` (deepest token below) and `start`."""
    for index in reversed(_preorder(drafts, roots)):
        draft = drafts[index]
        draft.reach = max([draft.end, *(drafts[child].reach for child in draft.children)])
    for draft in drafts:
        draft.children.sort(key=lambda child: -drafts[child].reach)
    ranked = _preorder(drafts, roots)
    start = 0
    for index in ranked:
        drafts[index].start = start
        start += drafts[index].end - drafts[index].depth
    return ranked


def _preorder(drafts: Sequence[_Draft], roots: Sequence[int]) -> list[int]:
    stack, visited = list(reversed(roots)), list[int]()
    while stack:
        index = stack.pop()
        visited.append(index)
        stack.extend(reversed(drafts[index].children))
    return visited


def _lay_out(samples: Sequence[Ints], drafts: list[_Draft], ranked: list[int], ends: list[int]) -> Forest:
    lengths = [drafts[index].end - drafts[index].depth for index in ranked]
    total = sum(lengths)
    tokens_S, depths_S = np.empty(total, np.int64), np.empty(total, np.int64)
    parents_S = np.arange(-1, total - 1, dtype=np.int64)
    for index in ranked:
        draft = drafts[index]
        here = slice(draft.start, draft.start + draft.end - draft.depth)
        tokens_S[here] = samples[draft.sample][draft.depth : draft.end]
        depths_S[here] = np.arange(draft.depth, draft.end)
        above = drafts[draft.parent] if draft.parent != NO_SLOT else None
        parents_S[draft.start] = NO_SLOT if above is None else above.start + above.end - above.depth - 1
    slots_N, offsets = _sample_slots(samples, drafts, ends)
    return Forest(tokens_S, depths_S, parents_S, slots_N, offsets, _segments(drafts, ranked))


def _sample_slots(samples: Sequence[Ints], drafts: list[_Draft], ends: list[int]) -> tuple[Ints, Ints]:
    """Every sample's slots end to end. A sample may end inside a segment: the run is cut there."""
    starts: list[int] = []
    counts: list[int] = []
    for sample, index in enumerate(ends):
        runs: list[tuple[int, int]] = []
        length = len(samples[sample])
        while index != NO_SLOT:
            draft = drafts[index]
            runs.append((draft.start, min(draft.end, length) - draft.depth))
            index = draft.parent
        for start, count in reversed(runs):
            starts.append(start)
            counts.append(count)
    counts_R = np.asarray(counts, np.int64)
    firsts_R = np.cumsum(counts_R) - counts_R
    slots_N = np.repeat(np.asarray(starts, np.int64) - firsts_R, counts_R) + np.arange(int(counts_R.sum()))
    offsets = np.concatenate([[0], np.cumsum([len(sample) for sample in samples])]).astype(np.int64)
    return slots_N, offsets


def _segments(drafts: list[_Draft], ranked: list[int]) -> tuple[Segment, ...]:
    place = {index: rank for rank, index in enumerate(ranked)}
    subtree_end: dict[int, int] = {}
    for index in reversed(ranked):
        draft = drafts[index]
        end = draft.start + draft.end - draft.depth
        subtree_end[index] = max([end, *(subtree_end[child] for child in draft.children)])
    return tuple(
        Segment(
            start=drafts[index].start,
            end=drafts[index].start + drafts[index].end - drafts[index].depth,
            depth=drafts[index].depth,
            parent=place[drafts[index].parent] if drafts[index].parent != NO_SLOT else NO_SLOT,
            heavy=place[drafts[index].children[0]] if drafts[index].children else NO_SLOT,
            subtree_end=subtree_end[index],
        )
        for index in ranked
    )
