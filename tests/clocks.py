"""A clock for tests; refuses to move by itself."""

from datetime import datetime, timedelta


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._elapsed_s = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Move on by `seconds` (>= 0)."""
        self._elapsed_s += seconds
