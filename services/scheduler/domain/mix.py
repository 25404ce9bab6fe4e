"""The mix of domains: smooth weighted round-robin over the domains that have something waiting, and the share
achieved.

Decided here: a domain with nothing waiting gains no credit meanwhile, so it doesn't flood the queue when it
comes back; slow tasks are paced by their share of admissions. The achieved mix counts every consumed item,
dropped ones included, except those that the end of the run swept away.
"""

from collections.abc import Collection


class Mix:
    """Credits of the domains; deterministic, ties go to the domain named first."""

    def __init__(self, weights: tuple[tuple[str, float], ...]) -> None:
        self._weights = dict(weights)
        self._credit = dict.fromkeys(self._weights, 0.0)

    def next(self, waiting: Collection[str]) -> str | None:
        """The domain whose turn it is among those waiting; asking changes nothing."""
        candidates = [name for name in self._weights if name in waiting]
        # A domain of weight 0 runs only when nothing else waits.
        return max(candidates, key=self._claim, default=None)

    def _claim(self, name: str) -> tuple[bool, float]:
        return self._weights[name] > 0, self._credit[name] + self._weights[name]

    def took(self, domain: str, waiting: Collection[str]) -> None:
        """`domain` had its turn while `waiting` (itself included) had something to give."""
        total = 0.0
        for name, weight in self._weights.items():
            if name in waiting:
                self._credit[name] += weight
                total += weight
        self._credit[domain] -= total
