"""Running totals of a run; refuses to know who is in flight, so that the sum of the books can be checked against
the queue.
"""

from dataclasses import dataclass, field

TAKEN = "taken"
EVALUATED = "evaluated"


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


@dataclass(slots=True)
class Tally:
    """Counts of episodes by end, of consumed items by domain, and of distances, lags and staleness.

    `items_by_end`: by domain, how its consumed items ended: `taken`, or the reason of their drop.
    """

    submitted: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    dropped_total: int = 0
    evaluations: int = 0
    evaluations_ended: dict[str, int] = field(default_factory=dict[str, int])
    consumed_by_domain: dict[str, int] = field(default_factory=dict[str, int])
    items_by_end: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    groups_by_domain: dict[str, int] = field(default_factory=dict[str, int])
    taken_items: int = 0
    distance_sum: int = 0
    distance_max: int = 0
    consumed_items: int = 0
    lag_sum: int = 0
    lag_max: int = 0
    staleness_episodes: int = 0
    staleness_sum: int = 0
    staleness_max: int = 0
    partial_episodes: int = 0
    pruned: int = 0

    def drop(self, reason: str) -> None:
        """A training episode will never be trained."""
        self.dropped_total += 1
        _count(self.dropped, reason)

    def evaluated(self, ended_by: str) -> None:
        """An evaluation episode is over: by itself when the reason is empty."""
        _count(self.evaluations_ended, ended_by or EVALUATED)

    def left(self, entered_at: int) -> None:
        """An item left the queue that entered it when `entered_at` items had left."""
        lag_items = self.consumed_items - entered_at
        self.lag_sum += lag_items
        self.lag_max = max(self.lag_max, lag_items)
        self.consumed_items += 1

    def consume(self, domain: str, end: str) -> None:
        """An item of the domain left the queue, not swept away by the run's end."""
        _count(self.consumed_by_domain, domain)
        _count(self.items_by_end.setdefault(domain, {}), end)

    def take(self, distance: int, staleness_steps: list[int], partial_episodes: int) -> None:
        """An item was taken for training, `distance` from the head; one staleness an eligible episode."""
        self.taken_items += 1
        self.distance_sum += distance
        self.distance_max = max(self.distance_max, distance)
        self.staleness_episodes += len(staleness_steps)
        self.staleness_sum += sum(staleness_steps)
        self.staleness_max = max([self.staleness_max, *staleness_steps])
        self.partial_episodes += partial_episodes

    @property
    def distance_mean(self) -> float:
        """Mean out-of-order distance of taken items, in items."""
        return self.distance_sum / self.taken_items if self.taken_items else 0.0

    @property
    def lag_mean(self) -> float:
        """Mean queue lag of consumed items, in items."""
        return self.lag_sum / self.consumed_items if self.consumed_items else 0.0

    @property
    def staleness_mean(self) -> float:
        """Mean staleness of taken episodes, in steps."""
        return self.staleness_sum / self.staleness_episodes if self.staleness_episodes else 0.0

    def achieved_mix(self) -> dict[str, float]:
        """Share of each domain in what was consumed."""
        return shares_of(self.consumed_by_domain)


def shares_of(counts: dict[str, int]) -> dict[str, float]:
    """Each name's share of the sum; empty when the sum is 0."""
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items())} if total else {}
