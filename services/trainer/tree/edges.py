"""A forest's steps from token to token: what a draft head reads. It refuses nothing; a forest may have no step at all.

A draft head's input is a pair: the hidden state at a token, and the token after it. Pairs form a forest of their own,
which is the tokens' without its roots.
"""

import numpy as np

from services.trainer.tree.forest import NO_SLOT, Forest, Ints, Segment


def steps_of(forest: Forest) -> tuple[Forest, Ints]:
    """The forest of steps, and for each step the slot that it leads to, in the same order.

    A step's depth is that of the token it starts from. Samples stand for what is left of them without their roots.
    """
    inner_S = forest.parents_S != NO_SLOT
    place_S1 = np.concatenate([[0], np.cumsum(inner_S)])
    slots_E = np.flatnonzero(inner_S)
    above_E = forest.parents_S[slots_E]
    parents_E = np.where(inner_S[above_E], place_S1[above_E], NO_SLOT)
    kept_N = inner_S[forest.slots_N]
    left_N1 = np.concatenate([[0], np.cumsum(kept_N)])
    steps = Forest(
        token_ids_S=forest.token_ids_S[slots_E],
        depths_S=forest.depths_S[slots_E] - 1,
        parents_S=parents_E,
        slots_N=place_S1[forest.slots_N[kept_N]],
        offsets=left_N1[forest.offsets],
        segments=_segments(forest, place_S1),
    )
    return steps, slots_E


def _segments(forest: Forest, place_S1: Ints) -> tuple[Segment, ...]:
    """The segments a slot shorter at their roots; below a root that vanishes, its children are roots."""
    spans = [(int(place_S1[s.start]), int(place_S1[s.end])) for s in forest.segments]
    ranks = list(np.cumsum([start < end for start, end in spans]) - 1)
    above = [
        NO_SLOT if s.parent == NO_SLOT or _empty(spans[s.parent]) else int(ranks[s.parent]) for s in forest.segments
    ]
    return tuple(
        Segment(
            start=start,
            end=end,
            depth=max(0, segment.depth - 1),
            parent=parent,
            heavy=NO_SLOT if segment.heavy == NO_SLOT else int(ranks[segment.heavy]),
            subtree_end=int(place_S1[segment.subtree_end]),
        )
        for segment, parent, (start, end) in zip(forest.segments, above, spans, strict=True)
        if start < end
    )


def _empty(span: tuple[int, int]) -> bool:
    return span[0] == span[1]
