"""From a forest to tiles: runs of slots that lie end to end, each beside all the keys that it sees, gathered.

What a run of slots in depth-first order sees outside itself is the path of its first slot. So a tile's keys are itself
and that path, under a mask, and tiles of about as many keys are stacked into one group. Where paths are short a piece
of a forest is a few groups instead of dozens of calls. It refuses to say when that pays: plan.py does.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from services.trainer.tree.forest import NO_SLOT, Forest, Ints

TILE_SLOTS = 24
"""Longer tiles hold more pairs that don't see each other; shorter ones gather the same path more often."""

TILE_KEYS = 384
"""Where a path is longer than this, in tokens, nothing is laid out in tiles: calls are better at that."""

GROUP_PAIRS = 1 << 16
"""Query-key pairs of a group at most: its scores stay near the core."""

SPREAD_PAIRS = 1 << 14
"""What a group costs whatever its size, in query-key pairs: padding up to that is cheaper than one more group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tiles of TILE_SLOTS slots, by their first ones; the forest's last tile may be shorter, and stands last.

    slots: of all tiles. keys: of the tile with the most.
    """

    firsts: tuple[int, ...]
    slots: int
    keys: int

    @property
    def pairs(self) -> int:
        """Scores that are computed."""
        return len(self.firsts) * TILE_SLOTS * self.keys


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Groups over all slots. Keys are the path above the forest, which it may hang on, and then its own slots.

    above: slots of that path. ends_A: for each key, one past the last slot that sees it. gathers: what
    tile_attention.py makes of groups, kept for the layers that follow and gone with the tiles.
    """

    above: int
    ends_A: Ints
    groups: tuple[Group, ...]
    gathers: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)


def tiles_of(forest: Forest, ends_S: Ints, groups: tuple[Group, ...]) -> Tiles:
    """A forest's tiles in their groups. Roots' depths say how much each tree sees of the path above."""
    roots = [segment for segment in forest.segments if segment.parent == NO_SLOT]
    above = max((root.depth for root in roots), default=0)
    # Depths of roots fall, so who sees a key of the path above are the first slots.
    falling_R = -np.array([root.depth for root in roots], np.int64)
    seen_R = np.array([0, *(root.subtree_end for root in roots)], np.int64)
    ends_above = seen_R[np.searchsorted(falling_R, -np.arange(above))]
    return Tiles(above, np.concatenate([ends_above, ends_S]), groups)


def tile_groups(depths_S: Ints) -> tuple[Group, ...]:
    """Tiles by how many keys they see, those grouped whose padding costs less than one more group."""
    slots = len(depths_S)
    keys_B = depths_S[::TILE_SLOTS] + TILE_SLOTS
    groups: list[Group] = []
    opened: list[int] = []
    wasted = 0
    # From the most keys on, so that those of a group's first tile are enough for all of it.
    for tile in np.argsort(-keys_B, kind="stable").tolist():
        if opened:
            most = int(keys_B[opened[0]])
            wasted += (most - int(keys_B[tile])) * TILE_SLOTS
            if wasted > SPREAD_PAIRS or (len(opened) + 1) * TILE_SLOTS * most > GROUP_PAIRS:
                groups.append(_group(opened, most, slots))
                opened, wasted = [], 0
        opened.append(tile)
    if opened:
        groups.append(_group(opened, int(keys_B[opened[0]]), slots))
    return tuple(groups)


def _group(tiles: list[int], keys: int, slots: int) -> Group:
    firsts = tuple(tile * TILE_SLOTS for tile in sorted(tiles))
    return Group(firsts, (len(firsts) - 1) * TILE_SLOTS + min(TILE_SLOTS, slots - firsts[-1]), keys)


def gathered(tiles: Tiles, group: Group) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Of each tile of a group: slots [B, L], keys [B, K], its own slots first, and who doesn't see which [B, L, K].

    What pads keys is seen by nobody; what pads slots sees one key, so that a softmax over it is a number.
    """
    within_L = np.arange(TILE_SLOTS, dtype=np.int32)
    firsts_B1 = np.array(group.firsts, np.int32)[:, None]
    own_BL = np.minimum(firsts_B1 + within_L, len(tiles.ends_A) - tiles.above - 1)
    ends_A = tiles.ends_A[: tiles.above + group.firsts[-1] + TILE_SLOTS].astype(np.int32)
    path_BA = ends_A > firsts_B1
    path_BA &= np.arange(len(ends_A), dtype=np.int32) < tiles.above + firsts_B1
    tile_N, key_N = np.nonzero(path_BA)
    counts_B = np.bincount(tile_N, minlength=len(firsts_B1))
    place_N = TILE_SLOTS + np.arange(len(key_N)) - np.repeat(np.cumsum(counts_B) - counts_B, counts_B)
    keys_BK = np.zeros((len(firsts_B1), group.keys), np.int64)
    ends_BK = np.full(keys_BK.shape, -1, np.int32)
    keys_BK[:, :TILE_SLOTS], ends_BK[:, :TILE_SLOTS] = tiles.above + own_BL, ends_A[tiles.above + own_BL]
    keys_BK[tile_N, place_N], ends_BK[tile_N, place_N] = key_N, ends_A[key_N]
    hidden_BLK = (firsts_B1 + within_L)[:, :, None] >= ends_BK[:, None]
    hidden_BLK[:, :, :TILE_SLOTS] |= within_L[:, None] < within_L
    hidden_BLK[-1, TILE_SLOTS - (len(group.firsts) * TILE_SLOTS - group.slots) :, 0] = False
    return own_BL.astype(np.int64), keys_BK, hidden_BLK
