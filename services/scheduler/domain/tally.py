"""Running totals of a run; refuses to know who is in flight, so that the sum of the books can be checked against
the queue.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of training episodes by end, of consumed items by domain, and of distances and staleness of what was
    taken.
    """

    submitted: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    evaluations: int = 0
    consumed_by_domain: dict[str, int] = field(default_factory=dict[str, int])
    groups_by_domain: dict[str, int] = field(default_factory=dict[str, int])
    taken_items: int = 0
    distance_sum: int = 0
    distance_max: int = 0
    staleness_episodes: int = 0
    staleness_sum: int = 0
    staleness_max: int = 0

    def drop(self, reason: str) -> None:
        """A training episode will never be trained."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def consume(self, domain: str) -> None:
        """An item of the domain left the queue."""
        self.consumed_by_domain[domain] = self.consumed_by_domain.get(domain, 0) + 1

    def take(self, distance: int, staleness_steps: list[int]) -> None:
        """An item was taken for training, `distance` from the head; one staleness an eligible episode."""
        self.taken_items += 1
        self.distance_sum += distance
        self.distance_max = max(self.distance_max, distance)
        self.staleness_episodes += len(staleness_steps)
        self.staleness_sum += sum(staleness_steps)
        self.staleness_max = max([self.staleness_max, *staleness_steps])

    @property
    def distance_mean(self) -> float:
        """Mean out-of-order distance of taken items, in items."""
        return self.distance_sum / self.taken_items if self.taken_items else 0.0

    @property
    def staleness_mean(self) -> float:
        """Mean staleness of taken episodes, in steps."""
        return self.staleness_sum / self.staleness_episodes if self.staleness_episodes else 0.0

    def achieved_mix(self) -> dict[str, float]:
        """Share of each domain in what was consumed."""
        total = sum(self.consumed_by_domain.values())
        return {name: count / total for name, count in sorted(self.consumed_by_domain.items())} if total else {}
