"""Greedy: first finished, first taken, wherever it stands in the queue. Fast, and it trains on quick items first; the
yardstick for both.
"""


class Greedy:
    """See the module. Every call costs O(1) amortised; a dict keeps the order in which items finished."""

    def __init__(self) -> None:
        self._ready: dict[int, None] = {}

    def finished(self, position: int, oldest_step: int) -> None:
        del oldest_step  # only the order of finishing decides here
        self._ready.setdefault(position)

    def consumed(self, position: int) -> None:
        self._ready.pop(position, None)

    def next(self, head: int, step: int) -> int | None:
        del head, step
        return next(iter(self._ready), None)

    def resize(self, window_items: int) -> None:
        del window_items  # there is no window

    def __len__(self) -> int:
        return len(self._ready)
