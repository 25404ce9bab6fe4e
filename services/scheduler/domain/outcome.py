"""What a schedule came to, measured in the same way for a record and for what would have been. Refuses to decide.

Drift is that of `auto_window`: mean KL (nats) of a batch's durations in five equally probable classes, less what the
same items have in order of position. Times are seconds since the first admission.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.scheduler.domain import facts
from services.scheduler.domain.auto_window import class_bounds, drift
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, DropItem, TakeItem
from services.scheduler.domain.queue import fold
from services.scheduler.domain.state import State


@dataclass(frozen=True, slots=True)
class Consumed:
    """An item that left the queue, in order; `batch` is 0 when it was dropped for `reason`."""

    group_id: str
    domain: str
    position: int
    batch: int
    reason: str
    duration_s: float


@dataclass(slots=True)
class Outcome:
    """Figures of the first `batches` batches."""

    batches: int = 0
    items_taken: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    span_s: float = 0.0
    items_per_s: float = 0.0
    trainer_idle_share: float = 0.0
    stall_share: float = 0.0
    distance_mean: float = 0.0
    distance_max: int = 0
    lag_items_mean: float = 0.0
    lag_items_max: int = 0
    staleness_mean_steps: float = 0.0
    staleness_max_steps: int = 0
    drift_kl_duration: float = 0.0
    achieved_mix: dict[str, float] = field(default_factory=dict[str, float])


class Observer:
    """Watches a schedule go by, entry by entry, until `batches` batches were trained."""

    def __init__(self, batches: int) -> None:
        self._wanted = batches
        self.state = State()
        self.order: list[Consumed] = []
        self._first_s: float | None = None
        self._closed_s: dict[int, float] = {}
        self._done_s: dict[int, float] = {}

    @property
    def complete(self) -> bool:
        """All batches that were asked for are trained."""
        return len(self._done_s) >= self._wanted

    def watch(self, taken: facts.Input, decisions: Iterable[Decision]) -> None:
        """The next entry; nothing is looked at any more once complete."""
        if self.complete:
            return
        for decision in fold(self.state, taken, decisions):
            self._note(decision, taken.taken_at_s)
        if isinstance(taken.fact, facts.StepDone | facts.StepFailed) and taken.fact.step in self._closed_s:
            self._done_s.setdefault(taken.fact.step, taken.taken_at_s)

    def _note(self, decision: Decision, now_s: float) -> None:
        match decision:
            case AdmitItem():
                self._first_s = now_s if self._first_s is None else self._first_s
            case TakeItem(group_id, position, batch):
                item = self.state.queue[position]
                self.order.append(Consumed(group_id, item.domain, position, batch, "", item.duration_s))
            case DropItem(group_id, int(position), reason) if position in self.state.queue:
                item = self.state.queue[position]
                self.order.append(Consumed(group_id, item.domain, position, 0, reason, item.duration_s))
            case CloseBatch(batch) if batch <= self._wanted:
                self._closed_s[batch] = now_s
            case _:
                pass

    def outcome(self) -> Outcome:
        """The figures so far."""
        tally, found = self.state.tally, Outcome(batches=len(self._done_s))
        found.items_taken = sum(1 for item in self.order if 0 < item.batch <= found.batches)
        for item in self.order:
            if item.reason:
                found.dropped[item.reason] = found.dropped.get(item.reason, 0) + 1
        if self._done_s and self._first_s is not None:
            found.span_s = max(self._done_s.values()) - self._first_s
            found.trainer_idle_share = self._idle_share()
        found.items_per_s = found.items_taken / found.span_s if found.span_s > 0 else 0.0
        found.stall_share = self.state.stalls.measured_share
        found.distance_mean, found.distance_max = tally.distance_mean, tally.distance_max
        found.lag_items_mean, found.lag_items_max = tally.lag_mean, tally.lag_max
        found.staleness_mean_steps, found.staleness_max_steps = tally.staleness_mean, tally.staleness_max
        found.drift_kl_duration = self._drift()
        found.achieved_mix = tally.achieved_mix()
        return found

    def _idle_share(self) -> float:
        """Share of the time from the first batch to the end of the last step in which no step ran."""
        busy_s, before_s = 0.0, 0.0
        for step in sorted(self._done_s):
            begun_s = max(self._closed_s[step], before_s)
            before_s = self._done_s[step]
            busy_s += max(0.0, before_s - begun_s)
        whole_s = before_s - min(self._closed_s.values())
        return max(0.0, 1.0 - busy_s / whole_s) if whole_s > 0 else 0.0

    def _drift(self) -> float:
        taken = [item for item in self.order if 0 < item.batch <= self._wanted]
        plan = self.state.plan
        if plan is None or len(taken) < plan.config.items_per_batch:
            return 0.0
        by_position = sorted(taken, key=lambda item: item.position)
        place = {item.position: index for index, item in enumerate(by_position)}
        bounds_s = class_bounds([item.duration_s for item in by_position])
        classes = [bisect_left(bounds_s, item.duration_s) for item in by_position]
        return drift(classes, [place[item.position] for item in taken], plan.config.items_per_batch)


def same_batch_share(ours: Sequence[Consumed], theirs: Sequence[Consumed]) -> float:
    """Of the groups that both trained, the share that stands in the batch of the same number; 1 when there are none."""
    batch_of = {item.group_id: item.batch for item in ours if item.batch}
    both = [item for item in theirs if item.batch and item.group_id in batch_of]
    return sum(batch_of[item.group_id] == item.batch for item in both) / len(both) if both else 1.0
