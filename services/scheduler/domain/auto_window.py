"""The window that follows observed durations (`window = "auto"`): the widest whose modelled drift stays within a bound.

Wide windows are fast and drift; narrow ones stall. How much of each depends on the spread of durations, on N against C
and on the batch, so it is computed: a small model of the queue runs on durations drawn from the last observed ones,
after N finished items and then ever more rarely, with windows from N downwards; the first that keeps the bound is
taken.
Drift is the mean KL divergence (nats) of a batch's durations, in five classes of equal probability, from those of all
items, less what the same items have in order of position: what batches of that size have by chance. A window selects
by duration alone, so whatever depends on an item's duration (difficulty) drifts no more (data processing inequality).

It refuses to act by itself: `decide` compares what it wants with the window in force, between two batches. Pure: the
same durations give the same window; draws come from a fixed sequence.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from services.scheduler.domain.config import RunConfig

CLASSES = 5
_DRAWN_ITEMS = 4096
_KEPT_DURATIONS = 2048
_FIRST_DURATIONS = 64
# Weighing costs as much as deciding on about as many items, also when a queue is folded after a restart.
_NEW_DURATIONS = 2048
_STEP = math.sqrt(2.0)


class AutoWindow:
    """Begins with a window of one batch, which hardly drifts, and keeps it until N durations were seen."""

    def __init__(self, config: RunConfig) -> None:
        self._bound = config.drift_bound
        self._shape = Shape.of(config)
        self._config = config
        # In a cohort the longest finish last: a part of one would not do.
        self._durations_s: deque[float] = deque(maxlen=max(_KEPT_DURATIONS, config.queue_items))
        self._unweighed, self._enough = 0, max(_FIRST_DURATIONS, config.queue_items)
        self.window_items = min(config.items_per_batch, config.queue_items)

    def lasted(self, duration_s: float, domain: str) -> None:
        """An item took this long from admission to its last member's end."""
        del domain  # the queue's order knows no domains
        self._durations_s.append(duration_s)
        self._unweighed += 1

    def batch_closed(self) -> None:
        """A batch was handed over: the moment to weigh the window anew, if enough items have finished since."""
        if self._unweighed < self._enough:
            return
        self._unweighed, self._enough = 0, max(self._config.queue_items, min(2 * self._enough, _NEW_DURATIONS))
        scaled = self._shape.widest(list(self._durations_s), self._bound)
        wanted = round(scaled * self._config.queue_items / self._shape.queue_items)
        self.window_items = max(1, min(wanted, self._config.queue_items))


class Shape:
    """The queue that is modelled: the run's own, or one smaller by a common factor when the run's is long."""

    def __init__(self, queue_items: int, in_flight_items: int, items_per_batch: int, *, cohort: bool) -> None:
        self.queue_items, self.in_flight_items = queue_items, in_flight_items
        self.items_per_batch, self.cohort = items_per_batch, cohort

    @classmethod
    def of(cls, config: RunConfig) -> "Shape":
        """The model's numbers, in items."""
        cohort = config.mode == "cohort"
        factor = max(1.0, config.queue_items * (2 if cohort else 8) / _DRAWN_ITEMS)
        numbers = (config.queue_items, config.in_flight_items, config.items_per_batch)
        return cls(*(max(1, round(number / factor)) for number in numbers), cohort=cohort)

    def widest(self, seen_s: Sequence[float], bound: float) -> int:
        """The widest window, in items of the model, that drifts no more than `bound`; 1 when none does."""
        cohorts = -(-_DRAWN_ITEMS // self.queue_items)
        drawn_s = list(_draw(seen_s, cohorts * self.queue_items))
        bounds_s = class_bounds(drawn_s)
        classes = [bisect_left(bounds_s, duration_s) for duration_s in drawn_s]
        for window_items in self._candidates():
            order = self.consumed(drawn_s, window_items)
            if not self.cohort:
                order = order[2 * self.queue_items :]
            if drift(classes, order, self.items_per_batch) <= bound:
                return window_items
        return 1

    def _candidates(self) -> Iterator[int]:
        window = float(self.queue_items)
        while window >= 1.5:
            yield round(window)
            window /= _STEP

    def consumed(self, durations_s: Sequence[float], window_items: int) -> list[int]:
        """Positions in the order in which they are consumed by a trainer that always wants more."""
        order: list[int] = []
        running: list[tuple[float, int]] = []
        ready: list[int] = []
        passed: set[int] = set()
        head = tail = 0
        now_s = 0.0
        while True:
            limit = min(len(durations_s), len(order) + self.queue_items)
            if self.cohort:
                limit = min(limit, head - head % self.queue_items + self.queue_items)
            while len(running) < self.in_flight_items and tail < limit:
                heappush(running, (now_s + durations_s[tail], tail))
                tail += 1
            if not running or (tail == len(durations_s) and not self.cohort):
                # A rolling queue that runs dry drifts at its end, a run that goes on doesn't.
                return order
            now_s, position = heappop(running)
            heappush(ready, position)
            while ready and ready[0] < head + window_items:
                position = heappop(ready)
                order.append(position)
                passed.add(position)
                while head in passed:
                    passed.discard(head)
                    head += 1


def _draw(values: Sequence[float], count: int) -> Iterator[float]:
    """Values drawn with replacement by a fixed sequence (Knuth's 64-bit linear congruence, its upper bits)."""
    state = 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield values[(state >> 33) * len(values) >> 31]


def class_bounds(values: Sequence[float]) -> list[float]:
    """Upper bounds of all classes but the last, so that each holds as many of the values."""
    ordered = sorted(values)
    return [ordered[len(ordered) * index // CLASSES] for index in range(1, CLASSES)]


def drift(classes: Sequence[int], order: Sequence[int], batch_items: int) -> float:
    """Mean KL (nats) of successive batches in the order consumed, less that of the same items in their own order.

    A batch of independent items diverges by chance already; batches in order of position measure how much.
    """
    taken = [classes[position] for position in order]
    return mean_kl(taken, batch_items) - mean_kl(classes, batch_items)


def mean_kl(classes: Sequence[int], batch_items: int) -> float:
    """Mean KL (nats) of successive batches' shares of the classes against equal shares."""
    batches = len(classes) // batch_items
    total = 0.0
    for start in range(0, batches * batch_items, batch_items):
        batch = classes[start : start + batch_items]
        total += sum(_term(batch.count(index) / batch_items) for index in range(CLASSES))
    return total / batches if batches else 0.0


def _term(share: float) -> float:
    return share * math.log(share * CLASSES) if share > 0 else 0.0
