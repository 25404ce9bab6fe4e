"""The state of a run's queue: the fold of its stream. It holds only what is not settled yet, plus totals.

It changes in place, by `apply_fact` and `apply_decision` alone: a copy of ten thousand items per decision would
cost more than deciding. Refuses to decide.

Decided here, where DESIGN 5 is silent:
- An item gets its position when it is admitted, not when its group closes. Closed groups wait by domain, so the
  order of positions is the wanted mix, however the client ordered its submissions; the queue Q is the admitted,
  not yet consumed positions, at most N.
- "Head" is the oldest unconsumed position, so `head == tail` means an empty queue.
- The batch being filled is number handed + 1. An item is consumed when it enters that batch, not when the batch
  is handed over.
- Staleness of an item taken into batch b is (b - 1) - the oldest policy step that sampled a token of an
  eligible member, since batch b is trained starting from policy b - 1.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from services.scheduler.domain.auto_window import AutoWindow
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.facts import Input
from services.scheduler.domain.members import Item, Member
from services.scheduler.domain.mix import Mix
from services.scheduler.domain.selection import Selection
from services.scheduler.domain.stalls import StallMeter
from services.scheduler.domain.tally import Tally


@dataclass(frozen=True, slots=True)
class Passed:
    """A position that was consumed before the head reached it."""

    group_id: str
    domain: str
    members: int
    dropped: bool


@dataclass(slots=True)
class Plan:
    """What exists only once the run is opened: its numbers, its mix and its selection policy."""

    config: RunConfig
    mix: Mix
    selection: Selection
    # Only where the window follows observed durations.
    auto: AutoWindow | None = None
    _bound_steps: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._bound_steps = self.config.staleness_bound_steps

    def too_stale(self, staleness_steps: int) -> bool:
        """Whether an item of that staleness is beyond what the run trains on."""
        return self._bound_steps is not None and staleness_steps > self._bound_steps


@dataclass(slots=True)
class State:
    """See the module. Steps count from 1, policy 0 is the model that the run started from; `published` is -1 before
    that.
    """

    plan: Plan | None = None
    # Facts about episodes that came before the run's own event.
    early: list[Input] = field(default_factory=list[Input])
    now_s: float = 0.0
    ended: bool = False
    removed: bool = False
    end_steps: int = 0
    published: int = -1
    completed: int = 0
    handed: int = 0

    # Unsettled training episodes; unsettled evaluation episodes, those waiting by pinned step, and how many run.
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    evaluations: dict[str, Member] = field(default_factory=dict[str, Member])
    evaluations_waiting: dict[int, OrderedDict[str, Member]] = field(
        default_factory=dict[int, OrderedDict[str, Member]]
    )
    evaluations_in_flight: int = 0

    # Items by group: not consumed yet. Of these, closed and not admitted, by domain; and admitted, by position.
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    waiting: dict[str, OrderedDict[str, Item]] = field(default_factory=dict[str, OrderedDict[str, Item]])
    queue: OrderedDict[int, Item] = field(default_factory=OrderedDict[int, Item])
    passed: dict[int, Passed] = field(default_factory=dict[int, Passed])
    closed_groups: set[str] = field(default_factory=set[str])
    head: int = 0
    tail: int = 0
    in_flight: int = 0
    # The window in force, in items; the whole queue where the policy has none.
    window_items: int = 0
    # The run's share of the fleet, in episodes; 0 = no bound beyond its own C.
    fleet_episodes: int = 0
    # Finished items in the queue that will be dropped when the window reaches them.
    doomed: int = 0

    # The batch being filled, and those handed over but not completed.
    filling: list[Item] = field(default_factory=list[Item])
    batches: dict[int, list[Item]] = field(default_factory=dict[int, list[Item]])

    # Decisions that are due: (episode, reason) to revoke, (group, reason) to drop, (deadline, episode) as a heap.
    to_revoke: deque[tuple[str, str]] = field(default_factory=deque[tuple[str, str]])
    to_drop: deque[tuple[str, str]] = field(default_factory=deque[tuple[str, str]])
    deadlines: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    tally: Tally = field(default_factory=Tally)
    stalls: StallMeter = field(default_factory=StallMeter)
    # Events so far in the published streams of this run's batches and of its retention.
    batch_events: int = 0
    retention_events: int = 0

    # Closed and not pruned: (steps done by then, episode), in that order; and what was asked to be kept, just now.
    closed: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    asked_keep_steps: int | None = None

    def live(self, episode_id: str) -> Member | None:
        """The unsettled episode of that id."""
        return self.members.get(episode_id) or self.evaluations.get(episode_id)

    def item_of(self, group_id: str) -> Item:
        """The group's item, not consumed yet or in the batch being filled. Raises StopIteration when there is none."""
        return self.items.get(group_id) or next(item for item in self.filling if item.group_id == group_id)

    def waiting_domains(self) -> list[str]:
        """Domains with something to admit."""
        return [name for name, items in self.waiting.items() if items]

    @property
    def books_off_by(self) -> int:
        """Submitted less trained, dropped and in flight, which is always 0; the same for evaluation episodes."""
        tally = self.tally
        training = tally.submitted - tally.trained - tally.dropped_total - len(self.members)
        evaluation = tally.evaluations - sum(tally.evaluations_ended.values()) - len(self.evaluations)
        return training or evaluation

    @property
    def prunable(self) -> int | None:
        """How many steps are kept, where the oldest closed episode is older than that; None: nothing is due."""
        if self.plan is None or not self.closed:
            return None
        bounds = [bound for bound in (self.asked_keep_steps, self.plan.config.keep_steps or None) if bound is not None]
        keep_steps = min(bounds, default=None)
        return keep_steps if keep_steps is not None and self.closed[0][0] <= self.completed - keep_steps else None

    @property
    def active(self) -> bool:
        """The run uses the fleet, or may: it is open, or evaluation of it is under way."""
        return self.plan is not None and not self.removed and (not self.ended or bool(self.evaluations))

    @property
    def next_batch(self) -> int:
        """Number of the batch being filled."""
        return self.handed + 1

    @property
    def evaluation_holds(self) -> bool:
        """Evaluation of the newest policy is under way: a new batch would soon replace that policy."""
        return self.evaluations_in_flight > 0 or bool(self.evaluations_waiting.get(self.published))

    @property
    def next_deadline_s(self) -> float | None:
        """When a tick will be due, in seconds since 1970."""
        return self.deadlines[0][0] if self.deadlines else None

    @property
    def stalled(self) -> bool:
        """A batch wants an item, finished ones are there, and the window hides all of them."""
        plan = self.plan
        if plan is None or not len(plan.selection) or not self.may_fill(self.next_batch):
            return False
        return len(self.filling) < plan.config.items_per_batch and self._hidden(plan)

    def _hidden(self, plan: Plan) -> bool:
        return plan.selection.next(self.head, self.next_batch - 1) is None

    @property
    def cohort_is_full(self) -> bool:
        """In cohort mode: every position of the head's cohort was given away."""
        plan = self.plan
        if plan is None or plan.config.mode != "cohort":
            return False
        return self.tail // plan.config.queue_items != self.head // plan.config.queue_items

    @property
    def expected_stall_share(self) -> float:
        """Share of the time in which the window would hide all that is finished, from the durations seen so far."""
        if self.plan is None or self.plan.config.selection in ("greedy", "version_window"):
            return 0.0
        return self.stalls.expected_share(self.window_items, self.plan.config.in_flight_items)

    def may_fill(self, batch: int) -> bool:
        """Whether batch `batch` may be filled: step b - 1 - S is done, and the run goes that far."""
        return self._within(batch, self.completed)

    def may_generate_for(self, batch: int) -> bool:
        """Whether items of batch `batch` may be admitted: by now they would sample from policy b - 1 - S or later."""
        return self._within(batch, self.published)

    def _within(self, batch: int, done: int) -> bool:
        if self.plan is None or self.ended:
            return False
        within_lookahead = batch - 1 - self.plan.config.lookahead_steps <= done
        return within_lookahead and (self.end_steps == 0 or batch <= self.end_steps)
