"""The mix of domains: smooth weighted round-robin over the domains that have something waiting, and what is owed to
those that had not.

Decided here: slow tasks are paced by their share of admissions, since what a window admits it consumes in nearly that
order. A domain with nothing waiting is owed its turns, `owed_limit` of them at most, and gets them back in every second
turn once it has something: so the share holds although a client submits one domain after the other, and nobody floods
the queue. The achieved mix counts every consumed item, dropped ones included, except those that the run's end swept
away.
"""

from collections.abc import Collection


class Mix:
    """Credits of the domains and turns owed to them; deterministic, ties go to the domain named first."""

    def __init__(self, weights: tuple[tuple[str, float], ...], owed_limit: int) -> None:
        self._weights = dict(weights)
        self._owed_limit = owed_limit
        total = sum(self._weights.values())
        self._shares = {name: weight / total for name, weight in weights}
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._owed = dict.fromkeys(self._weights, 0.0)
        self._repaid = False
        # Whether anybody is owed a whole turn; most of the time nobody is.
        self._owing = False

    def next(self, waiting: Collection[str]) -> str | None:
        """The domain whose turn it is among those waiting; asking changes nothing."""
        return self._creditor(waiting) or max(
            # A domain of weight 0 runs only when nothing else waits.
            (name for name in self._weights if name in waiting),
            key=self._claim,
            default=None,
        )

    def _claim(self, name: str) -> tuple[bool, float]:
        return self._weights[name] > 0, self._credit[name] + self._weights[name]

    def _creditor(self, waiting: Collection[str]) -> str | None:
        """Who gets an owed turn back now; nobody right after another was given back."""
        if self._repaid or not self._owing:
            return None
        owed = [name for name, turns in self._owed.items() if turns >= 1.0 and name in waiting]
        return max(owed, key=self._owed.__getitem__, default=None)

    def took(self, domain: str, waiting: Collection[str]) -> None:
        """`domain` had its turn while `waiting` (itself included) had something to give."""
        repaid = domain == self._creditor(waiting)
        if self._owed_limit and len(waiting) < len(self._shares):
            self._miss(waiting)
        self._repaid = repaid
        if repaid:
            # Of this turn its share was its own anyhow.
            self._owed[domain] -= 1.0 - self._shares[domain]
            self._owing = any(turns >= 1.0 for turns in self._owed.values())
            return
        total = 0.0
        for name, weight in self._weights.items():
            if name in waiting:
                self._credit[name] += weight
                total += weight
        self._credit[domain] -= total

    def _miss(self, waiting: Collection[str]) -> None:
        """A turn goes by in which some domains had nothing to give."""
        for name, share in self._shares.items():
            if name not in waiting:
                self._owed[name] = min(float(self._owed_limit), self._owed[name] + share)
                self._owing = self._owing or self._owed[name] >= 1.0
