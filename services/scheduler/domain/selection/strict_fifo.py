"""Strict FIFO: the head or nothing. Exactly windowed FIFO with W = 1, kept as a policy of its own so that it has a name
and no window that could be set wrong.
"""


class StrictFifo:
    """See the module. Every call costs O(1)."""

    def __init__(self) -> None:
        self._ready: set[int] = set()

    def finished(self, position: int, oldest_step: int) -> None:
        del oldest_step  # positions alone decide here
        self._ready.add(position)

    def consumed(self, position: int) -> None:
        self._ready.discard(position)

    def next(self, head: int, step: int) -> int | None:
        del step
        return head if head in self._ready else None

    def resize(self, window_items: int) -> None:
        del window_items  # there is no window

    def __len__(self) -> int:
        return len(self._ready)
