"""The adaptive window: its model against orders worked out by hand, and what it chooses."""

import math
import random
from dataclasses import replace

import pytest
from scheduler_rig import CONFIG, Rig, batches

from services.scheduler.domain.auto_window import AutoWindow, Shape, class_bounds, drift, mean_kl
from services.scheduler.domain.decisions import SetWindow
from services.scheduler.domain.queue import disagreement


def test_the_model_consumes_as_the_window_says() -> None:
    """Two slots; ends at 9, 1, 2, 3, … With W = 2, position 1 may overtake 0 and position 2 may not."""
    durations_s = [9.0, 1.0, 1.0, 1.0]
    assert Shape(4, 2, 1, cohort=True).consumed(durations_s, 4) == [1, 2, 3, 0]
    assert Shape(4, 2, 1, cohort=True).consumed(durations_s, 2) == [1, 0, 2, 3]
    assert Shape(4, 2, 1, cohort=True).consumed(durations_s, 1) == [0, 1, 2, 3]


def test_a_cohort_starts_when_the_last_one_is_consumed() -> None:
    """Position 2 belongs to the second cohort and would be over before 0, were it admitted."""
    durations_s = [9.0, 1.0, 1.0, 5.0]
    assert Shape(2, 2, 1, cohort=True).consumed(durations_s, 2) == [1, 0, 2, 3]
    # Rolling: 2 takes the place of 1 and ends at 2, 3 at 7; the model stops once nobody is left to admit.
    assert Shape(3, 2, 1, cohort=False).consumed(durations_s, 3) == [1, 2]


def test_divergence_of_batches() -> None:
    """One class a batch: ln 5. All five alike: 0. Two of five: ln 5 - ln 2."""
    assert mean_kl([0, 0, 1, 1], 2) == pytest.approx(math.log(5))
    assert mean_kl([0, 1, 2, 3, 4], 5) == pytest.approx(0.0)
    assert mean_kl([0, 1], 2) == pytest.approx(math.log(5) - math.log(2))
    # Sorted: two batches of one class each; in their own order each holds two classes: ln 5 - (ln 5 - ln 2).
    assert drift([0, 1, 0, 1], [0, 2, 1, 3], 2) == pytest.approx(math.log(2))
    assert drift([0, 1, 0, 1], [0, 1, 2, 3], 2) == 0.0


def test_classes_hold_as_many_each() -> None:
    assert class_bounds([5, 1, 4, 2, 3]) == [2, 3, 4, 5]


def auto(**changes: object) -> AutoWindow:
    """N = 40, C = 10, P = 5."""
    numbers = {"queue_items": 40, "in_flight_items": 10, "items_per_batch": 5, "window_items": 12, **changes}
    return AutoWindow(replace(CONFIG, window_auto=True, **numbers))


def weighed(window: AutoWindow, durations_s: list[float]) -> int:
    for duration_s in durations_s:
        window.lasted(duration_s, "a")
    window.batch_closed()
    return window.window_items


# Ranks in the golden ratio's order, made heavy-tailed: exp(1.6 z) by a logistic z.
HEAVY_S = [
    (share / (1 - share)) ** 0.9 for share in ((0.5 + index * 0.6180339887) % 1 for index in range(400)) if share
]


def test_it_begins_with_a_batch_and_keeps_it_until_a_queue_was_seen() -> None:
    window = auto(drift_bound=10.0)
    assert window.window_items == 5
    assert weighed(window, HEAVY_S[:63]) == 5
    assert weighed(window, HEAVY_S[63:64]) == 40


def test_equal_durations_leave_nothing_to_drift() -> None:
    """Nobody overtakes, so the whole queue may be seen, whatever the bound."""
    for mode in ("rolling", "cohort"):
        assert weighed(auto(mode=mode, drift_bound=1e-6), [3.0] * 100) == 40


def test_a_cohort_with_a_heavy_tail_gets_a_narrow_window() -> None:
    """The looser the bound, the wider; with 10 nats everything goes, ln 5 being the most that there is."""
    chosen = [weighed(auto(mode="cohort", drift_bound=bound), HEAVY_S) for bound in (1e-4, 0.05, 0.2, 10.0)]
    assert chosen == sorted(chosen)
    assert chosen[0] < 5 < 12 < chosen[2]
    assert chosen[-1] == 40
    assert 2 <= chosen[1] <= 12


def test_the_choice_keeps_its_bound_on_other_draws() -> None:
    """Measured by an order of our own: cohorts of 40 by ten slots, durations that the window has not drawn from."""
    bound = 0.1
    chosen = weighed(auto(mode="cohort", drift_bound=bound), HEAVY_S)
    shape = Shape(40, 10, 5, cohort=True)
    others_s = random.Random(5).choices(HEAVY_S, k=4000)
    bounds_s = class_bounds(others_s)
    classes = [sum(duration_s > bound_s for bound_s in bounds_s) for duration_s in others_s]
    assert drift(classes, shape.consumed(others_s, chosen), 5) < 1.5 * bound
    assert drift(classes, shape.consumed(others_s, 40), 5) > 2 * bound


def test_the_same_durations_give_the_same_window() -> None:
    first, second = (weighed(auto(mode="cohort", drift_bound=0.05), HEAVY_S) for _ in range(2))
    assert first == second


def test_a_long_queue_is_modelled_by_a_short_one() -> None:
    config = replace(CONFIG, queue_items=80_000, in_flight_items=10_000, items_per_batch=5_000, mode="cohort")
    shape = Shape.of(config)
    assert (shape.queue_items, shape.in_flight_items, shape.items_per_batch) == (2048, 256, 128)


def test_the_scheduler_sets_it_between_batches_and_records_it() -> None:
    """From one batch, as soon as the run is open, to the whole queue once 128 durations, all alike, were seen."""
    rig = Rig(window_auto=True, drift_bound=0.05, items_per_batch=64, queue_items=128, in_flight_items=64)
    assert windows_set(rig) == [SetWindow(64)]
    rig.submit(*[f"e{number}" for number in range(128)])
    for number in range(127):
        rig.finish(f"e{number}")
    assert windows_set(rig) == [SetWindow(64)]
    decided = rig.finish("e127")
    assert batches(decided) == [2]
    assert windows_set(rig) == [SetWindow(64), SetWindow(128)]
    assert rig.state.window_items == 128
    assert disagreement(rig.record) == ""


def windows_set(rig: Rig) -> list[SetWindow]:
    return [d for _, decided in rig.record for d in decided if isinstance(d, SetWindow)]
