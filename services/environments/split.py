"""Divides tasks between train and held-out, twice over: by seed range, and by a hash of what the task asks.

The seed ranges alone don't suffice: two seeds can draw the same question. It refuses to draw anything itself.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol, TypeVar

from services.environments.interface import InvalidTask, Split, checked_split

MAX_TASKS = 2**22
SEEDS_PER_TASK = 2**8
HELDOUT_FIRST_SEED = MAX_TASKS * SEEDS_PER_TASK
HELDOUT_PERCENT = 20


class Drawn(Protocol):
    """Something drawn from a seed."""

    @property
    def content_key(self) -> str:
        """What decides the split: equal for all draws that ask the same."""
        ...


DrawnT = TypeVar("DrawnT", bound=Drawn)


def split_of(content_key: str) -> Split:
    """The side on which a content falls, for ever: 20% are held out."""
    digest = hashlib.sha256(content_key.encode()).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % 100 < HELDOUT_PERCENT else "train"


def draw_in_split(split: str, index: int, draw: Callable[[int], DrawnT]) -> DrawnT:
    """The first draw of this index's own seeds whose content belongs to `split`. Raises InvalidTask."""
    side = checked_split(split)
    if not 0 <= index < MAX_TASKS:
        raise InvalidTask(f"index: {index} given, allowed: 0..{MAX_TASKS - 1}")
    first_seed = (HELDOUT_FIRST_SEED if side == "heldout" else 0) + index * SEEDS_PER_TASK
    for seed in range(first_seed, first_seed + SEEDS_PER_TASK):
        drawn = draw(seed)
        if split_of(drawn.content_key) == side:
            return drawn
    raise InvalidTask(f"index: none of the {SEEDS_PER_TASK} seeds of {side} task {index} draws a {side} content")
