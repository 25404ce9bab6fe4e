"""Version window: first finished, first taken, among items whose oldest token is at most so many steps behind the
policy that the batch is trained from. Versions only go on, so an item that has left the window never comes back: it is
named first, and dropped, whether or not a batch wants something.
"""

from heapq import heappop, heappush


class VersionWindow:
    """See the module; the bound is in optimiser steps. Every call costs O(log n) amortised."""

    def __init__(self, version_window_steps: int) -> None:
        self._bound_steps = version_window_steps
        self._ready: dict[int, int] = {}
        self._by_age: list[tuple[int, int]] = []

    def finished(self, position: int, oldest_step: int) -> None:
        if position not in self._ready:
            self._ready[position] = oldest_step
            heappush(self._by_age, (oldest_step, position))

    def consumed(self, position: int) -> None:
        self._ready.pop(position, None)
        while self._by_age and self._by_age[0][1] not in self._ready:
            heappop(self._by_age)

    def next(self, head: int, step: int) -> int | None:
        del head
        if self._by_age and step - self._by_age[0][0] > self._bound_steps:
            return self._by_age[0][1]
        return next(iter(self._ready), None)

    def resize(self, window_items: int) -> None:
        del window_items  # the window counts steps, and is fixed

    def __len__(self) -> int:
        return len(self._ready)
