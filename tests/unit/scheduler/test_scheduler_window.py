"""Windowed FIFO, worked by hand: items of one episode, positions 0, 1, 2, … are episodes e0, e1, e2, …"""

from dataclasses import replace

import pytest
from scheduler_rig import CONFIG, Rig, admitted, batches, dropped, taken

from services.scheduler.domain.selection import make_selection
from services.scheduler.domain.stalls import StallMeter


def filled(count: int = 10, **changes: object) -> Rig:
    rig = Rig(**changes)
    rig.submit(*[f"e{i}" for i in range(count)])
    return rig


def test_positions_follow_admission() -> None:
    rig = Rig()
    assert [admitted(rig.submit(f"e{i}")) for i in range(3)] == [[0], [1], [2]]
    assert (rig.state.head, rig.state.tail, rig.state.in_flight) == (0, 3, 3)


def test_items_beyond_the_window_stay_hidden_until_the_head_moves() -> None:
    rig = filled(items_per_batch=4)  # W = 3: positions 0, 1, 2 are visible
    assert taken(rig.finish("e3")) == []
    assert taken(rig.finish("e5")) == []
    assert taken(rig.finish("e2")) == [2]
    assert rig.state.head == 0, "the head moves only when the head item is consumed"
    assert taken(rig.finish("e1")) == [1]
    # The head passes the consumed 1 and 2: the window is 3, 4, 5; with 3 consumed it is 4, 5, 6.
    assert taken(rig.finish("e0")) == [0, 3, 5]
    assert rig.state.head == 4


def test_oldest_finished_position_goes_first() -> None:
    rig = filled(items_per_batch=1, window_items=10, lookahead_steps=2)
    assert rig.state.tail == 3, "batches 1, 2 and 3 may be generated before step 1 is done"
    assert taken(rig.finish("e2")) == [2]
    assert taken(rig.finish("e0")) == [0]
    assert taken(rig.finish("e1")) == [1]
    assert batches(rig.record[-1][1]) == [3]


def test_window_of_one_is_strict_fifo() -> None:
    rig = filled(window_items=1)
    order = [p for e in ("e4", "e1", "e3", "e0", "e2") for p in taken(rig.finish(e))]
    assert order == [0, 1, 2, 3, 4]
    assert rig.state.tally.distance_max == 0


def test_window_of_the_whole_queue_is_greedy() -> None:
    rig = filled(window_items=10)
    order = [p for e in ("e9", "e4", "e0", "e7") for p in taken(rig.finish(e))]
    assert order == [9, 4, 0, 7]
    assert rig.state.tally.distance_max == 9


def test_a_batch_is_handed_over_when_it_is_full() -> None:
    rig = filled()
    assert batches(rig.finish("e0")) == []
    assert batches(rig.finish("e1")) == [1]
    assert [item.group_id for item in rig.state.batches[1]] == ["e0", "e1"]
    assert batches(rig.finish("e2") + rig.finish("e3")) == [2]


def test_look_ahead_holds_admission_until_the_step_is_done() -> None:
    rig = filled(lookahead_steps=1)  # P = 2: at most (S + 1) * P = 4 items not trained yet
    assert rig.state.tail == 4
    assert batches(rig.finish("e0") + rig.finish("e1")) == [1]
    assert rig.state.tail == 4, "a batch that is being trained is not completed"
    assert admitted(rig.step(1)) == [4, 5]
    assert batches(rig.finish("e2") + rig.finish("e3")) == [2]
    assert batches(rig.finish("e4") + rig.finish("e5")) == [3], "batch 3 needs step 1 only: b - 1 - S = 1"


def test_without_look_ahead_generation_and_training_alternate() -> None:
    rig = filled(lookahead_steps=0)
    assert rig.state.tail == 2
    assert batches(rig.finish("e0") + rig.finish("e1")) == [1]
    assert rig.state.tail == 2
    assert admitted(rig.step(1)) == [2, 3]


def test_queue_bound_counts_unconsumed_positions() -> None:
    rig = filled(20, queue_items=4, window_items=2, in_flight_items=4)
    assert rig.state.tail == 4
    assert admitted(rig.finish("e3")) == [], "finished, hidden, and still in the queue"
    assert admitted(rig.finish("e1")) == [4], "consumed behind the head: item N enters"
    decided = rig.finish("e0")  # the head passes 1 as well: the window is 2, 3
    assert (taken(decided), admitted(decided)) == ([0, 3], [5, 6])


def test_items_in_flight_are_bounded() -> None:
    rig = filled(20, in_flight_items=2)
    assert rig.state.tail == 2
    assert admitted(rig.finish("e1")) == [2], "a finished item is not in flight"


def test_dead_head_is_dropped_and_the_window_moves_on() -> None:
    rig = filled()
    assert taken(rig.finish("e3")) == []
    decided = rig.fail("e0")
    assert dropped(decided) == [(0, "too_few_eligible")]
    assert taken(decided) == [3], "the window is now 1, 2, 3"
    assert rig.state.tally.dropped == {"infra": 1}


def test_an_item_beyond_the_window_is_not_even_dropped() -> None:
    rig = filled()
    assert rig.fail("e5") == []
    assert rig.state.doomed == 1
    assert dropped(rig.finish("e0") + rig.finish("e1")) == [], "window 2, 3, 4"
    assert dropped(rig.finish("e2")) == [(5, "too_few_eligible")], "window 3, 4, 5"
    assert rig.state.doomed == 0


def test_too_stale_items_are_dropped_at_selection() -> None:
    rig = filled(max_staleness_steps=1, items_per_batch=1)
    assert rig.state.tail == 2, "items for batch 3 would be 2 steps behind: not admitted before policy 1"
    assert batches(rig.finish("e1", step=0)) == [1]
    rig.step(1)
    rig.step(2)  # batch 2 is trained from policy 1: a token of policy 0 is one step old there
    assert batches(rig.finish("e0", step=0)) == [2]
    assert dropped(rig.finish("e2", step=0)) == [(2, "too_stale")], "batch 3: 2 - 0 = 2 steps"
    assert batches(rig.finish("e3", step=1)) == [3]
    assert (rig.state.tally.staleness_max, rig.state.tally.staleness_mean) == (1, pytest.approx(2 / 3))


def test_the_run_never_hands_over_more_batches_than_it_has_steps() -> None:
    rig = filled(end_steps=2)  # P = 2
    assert rig.state.tail == 4
    decided = [d for i in range(4) for d in rig.finish(f"e{i}")]
    assert batches(decided) == [1, 2]
    assert rig.state.tail == 4
    rig.step(1)
    rig.step(2)
    assert rig.state.tail == 4


def test_a_doomed_item_is_replaced_at_once_near_the_end() -> None:
    rig = filled(end_steps=1, window_items=1)
    assert rig.state.tail == 2
    assert admitted(rig.fail("e1")) == [2], "e1 waits behind the head for its drop, but can't be trained"


def test_stall_is_measured_while_finished_items_are_hidden() -> None:
    rig = filled(items_per_batch=8)
    rig.now_s += 10
    rig.finish("e5")  # hidden from 1010 on; nothing finished before: no stall
    rig.now_s += 30
    rig.finish("e0")  # 30 s of stall; 5 is still hidden
    rig.now_s += 10
    rig.finish("e3")  # 10 s more; window 1, 2, 3
    assert (rig.state.stalls.stalled_s, rig.state.stalls.observed_s) == (40, 50)
    assert rig.state.stalls.measured_share == pytest.approx(0.8)


def test_expected_stall_share() -> None:
    meter = StallMeter()
    assert meter.expected_share(3, 10) == 0.0
    for duration_s in (1.0, 1.0, 1.0, 5.0):
        meter.lasted(duration_s)
    # d_max / d_mean = 5 / 2: ten slots bring 25 items while the longest runs.
    assert meter.expected_share(10, 10) == pytest.approx(1 - 10 / 25)
    assert meter.expected_share(25, 10) == 0.0


def test_unknown_selection_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="selection: given 'lottery'; allowed windowed_fifo, strict_fifo, greedy, version_window"
    ):
        make_selection(replace(CONFIG, selection="lottery"))
