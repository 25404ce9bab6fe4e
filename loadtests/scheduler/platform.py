"""The platform around the scheduler, imagined: engines that take as long as an item's duration says, one trainer that
takes batches in order, a client that always has more. Refuses to decide: it answers decisions with facts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, DropItem, TakeItem
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import Planned

# The first moment, in microseconds since 1970: simulated times look like real ones, rounding included.
START_US = 1_767_225_600_000_000


@dataclass(slots=True)
class Trace:
    """What happened, in the order of decisions: items by number, times in microseconds."""

    taken: list[int] = field(default_factory=list[int])
    lags: list[int] = field(default_factory=list[int])
    dropped: list[int] = field(default_factory=list[int])
    # By batch: when it was full, when its training began and ended, and the stall seconds so far when it was full.
    closed_us: list[int] = field(default_factory=list[int])
    begun_us: list[int] = field(default_factory=list[int])
    done_us: list[int] = field(default_factory=list[int])
    stalled_s: list[float] = field(default_factory=list[float])
    windows: list[int] = field(default_factory=list[int])


class Imagined:
    """Platform of `what_if`. `durations_us` by episode: member m of item n is n * G + m. `discard_share`: of each
    cohort of N that share is never waited for: once the others are consumed the client calls off what still runs.
    """

    def __init__(
        self, config: RunConfig, durations_us: Sequence[int], step_us: int, discard_share: float = 0.0
    ) -> None:
        self._config, self._durations_us, self._step_us = config, durations_us, step_us
        self._wanted = round(config.queue_items * (1.0 - discard_share)) if discard_share else 0
        self._cohort, self._left = 0, self._wanted
        self._submitted = 0
        self._running: dict[str, None] = {}
        self.trace = Trace()

    def opening(self) -> Iterator[Planned]:
        yield START_US, (facts.RunOpened(self._config), facts.PolicyPublished(0))
        for _ in range(self._config.in_flight_items + 1):
            yield from self._submission(START_US)

    def follows(self, state: State, decision: Decision, now_us: int) -> list[Planned]:
        match decision:
            case AdmitItem(group_id):
                self._running[group_id] = None
                return [*self._endings(group_id, state.published, now_us), *self._submission(now_us)]
            case TakeItem(group_id, position, batch):
                self._running.pop(group_id, None)
                self.trace.taken.append(int(group_id))
                self.trace.lags.append(batch - 1 - state.items[group_id].oldest_step)
                return self._call_off(now_us) if self._is_enough(position // self._config.queue_items) else []
            case DropItem(group_id):
                self._running.pop(group_id, None)
                self.trace.dropped.append(int(group_id))
                return []
            case CloseBatch(batch):
                return self._training(state, batch, now_us)
            case _:
                return []

    def _submission(self, now_us: int) -> list[Planned]:
        size, number = self._config.group_size, self._submitted
        if (number + 1) * size > len(self._durations_us):
            return []
        self._submitted += 1
        members = [facts.Submitted(name, str(number) if size > 1 else "", "agent") for name in names(number, size)]
        return [(now_us, tuple(members))]

    def _endings(self, group_id: str, step: int, now_us: int) -> list[Planned]:
        number, size = int(group_id), self._config.group_size
        endings: list[Planned] = []
        for member, name in enumerate(names(number, size)):
            duration_us = self._durations_us[number * size + member]
            known = (
                facts.Finished(name, 1, duration_us / 1e6),
                facts.Sealed(name, b"", 1, step),
                facts.Scored(name, performance(number, member), "solved", b""),
            )
            endings.append((now_us + duration_us, known))
        return endings

    def _is_enough(self, cohort: int) -> bool:
        """Whether this item of the cohort was the last to be waited for; what has finished by then is consumed."""
        if cohort > self._cohort:
            self._cohort, self._left = cohort, self._wanted
        self._left -= 1
        return self._left == 0

    def _call_off(self, now_us: int) -> list[Planned]:
        running, self._running = self._running, {}
        called_off = [facts.Cancelled(name) for group in running for name in names(int(group), self._config.group_size)]
        return [(now_us, tuple(called_off))]

    def _training(self, state: State, batch: int, now_us: int) -> list[Planned]:
        trace = self.trace
        begun_us = max(now_us, trace.done_us[-1] if trace.done_us else now_us)
        done_us = begun_us + self._step_us
        trace.closed_us.append(now_us)
        trace.begun_us.append(begun_us)
        trace.done_us.append(done_us)
        trace.stalled_s.append(state.stalls.stalled_s)
        trace.windows.append(state.window_items)
        return [(done_us, (facts.StepDone(batch, ()),)), (done_us, (facts.PolicyPublished(batch),))]


def names(number: int, size: int) -> list[str]:
    """Episodes of item `number`, a group when there are several."""
    return [f"{number}.{member}" for member in range(size)] if size > 1 else [str(number)]


def performance(number: int, member: int) -> float:
    """Every second member of a group succeeds; in every seventh group all do, so that it is dropped: no spread."""
    return 1.0 if number % 7 == 6 else float(member % 2 == 0)
