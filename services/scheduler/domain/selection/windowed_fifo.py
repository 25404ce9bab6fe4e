"""Windowed FIFO (DESIGN 5): the oldest finished position of [head, head + W - 1]; never one beyond, however long
it has been ready.

W = 1 is strict FIFO; W = N takes whatever of the queue is finished, oldest position first. A heap of finished
positions is enough: if its least one is beyond the window, all are.
"""

from heapq import heappop, heappush


class WindowedFifo:
    """See the module. Every call costs O(log n) amortised."""

    def __init__(self, window_items: int) -> None:
        self._window_items = window_items
        self._heap: list[int] = []
        self._ready: set[int] = set()

    def finished(self, position: int, oldest_step: int) -> None:
        del oldest_step  # positions alone decide here
        if position not in self._ready:
            self._ready.add(position)
            heappush(self._heap, position)

    def consumed(self, position: int) -> None:
        self._ready.discard(position)
        while self._heap and self._heap[0] not in self._ready:
            heappop(self._heap)

    def next(self, head: int, step: int) -> int | None:
        del step
        if self._heap and self._heap[0] < head + self._window_items:
            return self._heap[0]
        return None

    def resize(self, window_items: int) -> None:
        self._window_items = window_items

    def __len__(self) -> int:
        return len(self._ready)
