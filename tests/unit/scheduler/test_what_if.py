"""The imagined platform's loop: times, ties and deadlines worked out by hand."""

from collections.abc import Iterator
from dataclasses import replace

from scheduler_rig import CONFIG

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, DropItem, Revoke, TakeItem
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import Planned, first_tick_us, what_if

US = 1_000_000


class Script:
    """Episodes of given seconds, all submitted at second 0; training takes no time."""

    def __init__(self, seconds: dict[str, float], **changes: object) -> None:
        self.seconds, self.config = seconds, replace(CONFIG, **changes)

    def opening(self) -> Iterator[Planned]:
        yield 0, (facts.RunOpened(self.config), facts.PolicyPublished(0))
        for name in self.seconds:
            yield 0, (facts.Submitted(name, "", "a"),)

    def follows(self, state: State, decision: Decision, now_us: int) -> list[Planned]:
        if isinstance(decision, CloseBatch):
            return [(now_us, (facts.StepDone(decision.batch, ()), facts.PolicyPublished(decision.batch)))]
        if not isinstance(decision, AdmitItem):
            return []
        name = decision.group_id
        end_us = now_us + round(self.seconds[name] * US)
        known = (facts.Finished(name, 1, 1.0), facts.Sealed(name, b"", 1, 0), facts.Scored(name, 1.0, "solved", b""))
        return [(end_us, known)]


def told(script: Script) -> list[tuple[float, Decision]]:
    return [(taken.taken_at_s, d) for taken, decided in what_if(script, State()) for d in decided]


def test_places_are_given_on_as_episodes_end() -> None:
    """Two places: a 0-5, b 0-2, c 2-3, d 3-7. With W = 1 all wait for a; batches of two at 5 and 7."""
    decided = told(Script({"a": 5, "b": 2, "c": 1, "d": 4}, in_flight_items=2, window_items=1))
    assert [(t, d.group_id) for t, d in decided if isinstance(d, AdmitItem)] == [(0, "a"), (0, "b"), (2, "c"), (3, "d")]
    assert [(t, d.group_id) for t, d in decided if isinstance(d, TakeItem)] == [(5, "a"), (5, "b"), (5, "c"), (7, "d")]
    assert [t for t, d in decided if isinstance(d, CloseBatch)] == [5, 7]


def test_a_deadline_ticks_by_itself_and_the_late_end_does_not_arrive() -> None:
    """b would end at 9; its deadline is 6 after its admission at 0. Nothing comes of it at 9."""
    script = Script({"a": 1, "b": 9}, deadline_s=6.0)
    inputs = [(taken.taken_at_s, type(taken.fact).__name__) for taken, _ in what_if(script, State())]
    assert (6.0, "Ticked") in inputs
    assert max(time_s for time_s, _ in inputs) == 6.0
    endings = [(t, d) for t, d in told(script) if isinstance(d, Revoke | DropItem)]
    assert endings == [(6.0, Revoke("b", "deadline")), (6.0, DropItem("b", 1, "deadline"))]


def test_the_first_tick_is_never_early_and_never_a_microsecond_late() -> None:
    for deadline_s in (1_767_225_600.1, 1_767_225_600.0000003, 0.1 + 0.2, 1e9 + 1e-6):
        tick_us = first_tick_us(deadline_s)
        assert tick_us / US >= deadline_s
        assert (tick_us - 1) / US < deadline_s
