"""The numbers that a run's schedule is made of; refuses values under which the queue could not move."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A run's scheduling, resolved. Raises ValueError that names the field, what was given and what is allowed.

    domains: (name, weight) in the run file's order, which breaks ties of the mix.
    group_size: members of an item (G). items_per_batch: P. queue_items: N. window_items: W. in_flight_items: C.
    lookahead_steps: S. deadline_s: from admission. max_staleness_steps and end_steps: 0 = no bound.
    min_reward_spread: performance scores of a group that differ by no more than this are equal.
    selection: the policy's name. mode: "rolling" or "cohort" (N items are generated and consumed before the next N).
    version_window_steps: bound of the policy of that name. window_auto: the window follows observed durations so that
    the mean KL (nats) of a batch's durations against the submitted ones stays within drift_bound.
    fleet_weight: share of the fleet, relative to the other active runs. owed_items: turns, at most, that a domain gets
    back in which it had nothing waiting; 0 in runs recorded before there was such a thing. keep_steps: episodes that
    closed so many steps ago are pruned; 0 = only when somebody asks.
    """

    domains: tuple[tuple[str, float], ...]
    group_size: int
    items_per_batch: int
    queue_items: int
    window_items: int
    in_flight_items: int
    lookahead_steps: int
    deadline_s: float
    max_staleness_steps: int
    min_reward_spread: float
    end_steps: int = 0
    selection: str = "windowed_fifo"
    mode: str = "rolling"
    version_window_steps: int = 0
    window_auto: bool = False
    drift_bound: float = 0.0
    fleet_weight: float = 1.0
    owed_items: int = 0
    keep_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("group_size", "items_per_batch", "queue_items", "window_items", "in_flight_items"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: given {getattr(self, name)}; allowed 1 or more")
        if self.window_items > self.queue_items:
            raise ValueError(f"window_items: given {self.window_items}; allowed 1..{self.queue_items}")
        if not self.deadline_s > 0:
            raise ValueError(f"deadline_s: given {self.deadline_s}; allowed above 0")
        if self.mode not in ("rolling", "cohort"):
            raise ValueError(f"mode: given {self.mode!r}; allowed rolling, cohort")
        if self.window_auto and self.selection != "windowed_fifo":
            raise ValueError(f"window: given 'auto' with {self.selection}; allowed with windowed_fifo only")
        if not self.fleet_weight > 0:
            raise ValueError(f"fleet_weight: given {self.fleet_weight}; allowed above 0")
        if not any(weight > 0 for _, weight in self.domains):
            raise ValueError(f"domains: given {self.domains}; allowed one or more with a weight above 0")

    @property
    def shares(self) -> dict[str, float]:
        """Wanted share of each domain; they sum to 1."""
        total = sum(weight for _, weight in self.domains)
        return {name: weight / total for name, weight in self.domains}

    @property
    def reach_items(self) -> int:
        """How many positions from the head on the policy can see at first: its window, where it has one."""
        match self.selection:
            case "windowed_fifo":
                return self.window_items
            case "strict_fifo":
                return 1
            case _:
                return self.queue_items

    @property
    def staleness_bound_steps(self) -> int | None:
        """Staleness above which an item is dropped rather than trained; None when there is no such bound."""
        bounds = [self.max_staleness_steps] if self.max_staleness_steps > 0 else []
        if self.selection == "version_window":
            bounds.append(self.version_window_steps)
        return min(bounds, default=None)

    @property
    def eligible_needed(self) -> int:
        """Eligible members without which a group has no baseline."""
        return 2 if self.group_size > 1 else 1
