"""How much time the window costs: the stall share that is expected and the one that was measured.

A stall is time in which a batch wants an item, finished items are there, and the window hides all of them.
"""

from dataclasses import dataclass

WARN_SHARE = 0.1


@dataclass(slots=True)
class StallMeter:
    """Sums up seconds of stalls and of item durations; fed at every input."""

    since_s: float = 0.0
    observed_s: float = 0.0
    stalled_s: float = 0.0
    running: bool = False
    durations: int = 0
    duration_sum_s: float = 0.0
    duration_max_s: float = 0.0

    def moved_to(self, now_s: float, *, stalled: bool) -> None:
        """Time has gone on to `now_s`, during all of which the queue was stalled, or was not."""
        elapsed_s = max(0.0, now_s - self.since_s)
        if self.running:
            self.observed_s += elapsed_s
            self.stalled_s += elapsed_s if stalled else 0.0
        self.since_s = now_s

    def lasted(self, duration_s: float) -> None:
        """An item took this long from admission to its last member's end."""
        self.durations += 1
        self.duration_sum_s += duration_s
        self.duration_max_s = max(self.duration_max_s, duration_s)

    @property
    def measured_share(self) -> float:
        """Stalled share of the time since the first admission."""
        return self.stalled_s / self.observed_s if self.observed_s > 0 else 0.0

    def expected_share(self, window_items: int, in_flight_items: int) -> float:
        """max(0, 1 - W / (C * d_max / d_mean)), with the durations observed (DESIGN 5: no stall when W >= C * d_max /
        d_mean).

                While the longest item runs, its C slots bring C * d_max / d_mean items; the window lets W of them be
                consumed.
        """
        if not self.duration_sum_s > 0:
            return 0.0
        brought = in_flight_items * self.duration_max_s / (self.duration_sum_s / self.durations)
        return max(0.0, 1.0 - window_items / brought)
