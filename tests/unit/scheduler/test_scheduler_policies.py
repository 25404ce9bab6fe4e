"""The rivals of windowed FIFO and the cohort mode, worked by hand: items of one episode, position i is episode ei."""

from dataclasses import replace

import pytest
from scheduler_rig import CONFIG, Rig, admitted, batches, dropped, taken

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import SetWindow
from services.scheduler.domain.selection import make_selection


def filled(count: int = 10, **changes: object) -> Rig:
    rig = Rig(**changes)
    rig.submit(*[f"e{i}" for i in range(count)])
    return rig


def test_strict_fifo_takes_the_head_or_nothing_whatever_the_window_says() -> None:
    rig = filled(selection="strict_fifo", window_items=10)
    order = [p for e in ("e4", "e1", "e3", "e0", "e2") for p in taken(rig.finish(e))]
    assert order == [0, 1, 2, 3, 4]
    assert (rig.state.window_items, rig.state.tally.distance_max) == (1, 0)


def test_greedy_takes_what_finished_first_beyond_any_window() -> None:
    rig = filled(selection="greedy", window_items=1, items_per_batch=1, lookahead_steps=9, max_staleness_steps=0)
    order = [p for e in ("e9", "e4", "e7", "e0") for p in taken(rig.finish(e))]
    assert order == [9, 4, 7, 0]
    assert (rig.state.window_items, rig.state.expected_stall_share) == (10, 0.0)


def test_greedy_keeps_the_order_of_finishing_while_no_batch_wants_anything() -> None:
    # S = 0: batch 1 is full with e5 and e3; the others wait for step 1 in the order in which they finished.
    rig = filled(selection="greedy", items_per_batch=2, lookahead_steps=1)
    assert rig.state.tail == 4
    assert batches(rig.finish("e3") + rig.finish("e2")) == [1]
    assert taken(rig.finish("e1") + rig.finish("e0")) == [1, 0]


def test_version_window_drops_what_has_fallen_out_of_it_at_once() -> None:
    rig = filled(selection="version_window", version_window_steps=1, items_per_batch=1, lookahead_steps=9)
    assert rig.state.tail == 2, "an item of batch 3 would be 2 steps behind before policy 1 is out"
    assert batches(rig.finish("e1", step=0)) == [1]
    assert admitted(rig.step(1)) == [2]
    assert batches(rig.finish("e2", step=1)) == [2]
    # Batch 3 is trained from policy 2: e0, of policy 0, is 2 steps behind.
    assert dropped(rig.finish("e0", step=0)) == [(0, "too_stale")]
    assert rig.state.tally.dropped == {"too_stale": 1}


def test_version_window_drops_an_old_item_though_no_batch_wants_one() -> None:
    rig = filled(selection="version_window", version_window_steps=1, items_per_batch=2, lookahead_steps=1)
    rig.finish("e0")
    rig.finish("e1")  # batch 1
    rig.finish("e2")
    rig.finish("e3")  # batch 2; batch 3 needs step 1
    rig.feed(facts.PolicyPublished(1))  # before the step itself is heard of
    assert rig.state.tail == 6
    # Batch 3 waits for step 1, and will be trained from policy 2: e4 of policy 0 will be 2 steps behind, for ever.
    assert dropped(rig.finish("e4", step=0)) == [(4, "too_stale")]
    assert taken(rig.finish("e5", step=1)) == []


def test_version_window_names_what_has_left_it_before_what_finished_first() -> None:
    policy = make_selection(replace(CONFIG, selection="version_window", version_window_steps=1))
    policy.finished(3, 2)
    policy.finished(5, 0)
    assert (policy.next(0, 1), policy.next(0, 2)) == (3, 5)
    policy.consumed(5)
    assert policy.next(0, 2) == 3


def test_cohort_opens_only_when_the_last_one_is_consumed() -> None:
    rig = filled(12, mode="cohort", queue_items=4, window_items=2, in_flight_items=4, items_per_batch=2)
    assert rig.state.tail == 4
    assert taken(rig.finish("e1")) == [1]
    assert rig.state.tail == 4, "a rolling queue would have admitted position 4 here"
    rig.finish("e0")
    rig.finish("e3")
    assert (rig.state.head, rig.state.tail) == (2, 4)
    assert admitted(rig.finish("e2")) == [4, 5, 6, 7]
    assert (rig.state.head, rig.state.tail) == (4, 8)


def test_dead_members_of_a_cohort_do_not_hold_the_next_one_back() -> None:
    rig = filled(8, mode="cohort", queue_items=4, window_items=1, in_flight_items=4, items_per_batch=2)
    for episode in ("e3", "e1", "e2"):
        rig.fail(episode)
    assert rig.state.tail == 4
    assert admitted(rig.finish("e0")) == [4, 5, 6, 7]
    assert (rig.state.head, len(rig.state.filling)) == (4, 1), "a batch may hold items of two cohorts"


def test_the_window_changes_between_two_batches_and_is_recorded() -> None:
    rig = filled(window_auto=True, drift_bound=0.1, items_per_batch=2, window_items=2)
    assert rig.state.plan is not None
    assert rig.state.plan.auto is not None
    rig.finish("e1")
    rig.state.plan.auto.window_items = 5
    assert [d for d in rig.finish("e4") if isinstance(d, SetWindow)] == [], "not while a batch is filled"
    decided = rig.finish("e0")
    assert SetWindow(5) in decided
    assert rig.state.window_items == 5
    assert taken(decided) == [0, 4], "position 4 is seen from head 2 by the window of five"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "relay"}, "mode: given 'relay'; allowed rolling, cohort"),
        ({"window_auto": True, "selection": "greedy"}, "window: given 'auto' with greedy; allowed with windowed_fifo"),
        ({"fleet_weight": 0.0}, "fleet_weight: given 0.0; allowed above 0"),
    ],
)
def test_impossible_numbers_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


def test_an_unknown_policy_is_refused_when_the_run_opens() -> None:
    with pytest.raises(ValueError, match="selection: given 'lottery'"):
        Rig(selection="lottery")
