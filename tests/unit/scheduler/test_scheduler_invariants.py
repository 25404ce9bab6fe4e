"""What must hold for every order of events (DESIGN 5; docs/scheduling-rules.md): thousands of random histories of every
policy in both modes, each decision held against a naive account (scheduler_history.py), and a stateful machine that
shrinks what it breaks.
"""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from scheduler_history import ACTIONS, History, act, random_history
from scheduler_rig import Rig

from services.scheduler.domain.decide import decide
from services.scheduler.domain.decisions import CloseBatch, TakeItem
from services.scheduler.domain.queue import advance, disagreement, fold
from services.scheduler.domain.state import State

POLICIES = ("windowed_fifo", "strict_fifo", "greedy", "version_window")
MODES = ("rolling", "cohort")
HISTORIES = 260

every = pytest.mark.parametrize(("policy", "mode"), [(policy, mode) for policy in POLICIES for mode in MODES])


@every
def test_every_decision_keeps_the_rules(policy: str, mode: str) -> None:
    """Positions, window, order, distance, lag, S, C, N, drops and the books, asserted at each decision and input."""
    taken = dropped = batches = 0
    for seed in range(HISTORIES):
        history = random_history(seed, selection=policy, mode=mode)
        taken, dropped = taken + len(history.taken), dropped + len(history.dropped)
        batches += history.handed
    assert min(taken, dropped, batches) > HISTORIES, "histories in which little happens prove little"


class Machine(RuleBasedStateMachine):
    """The same account, driven by hypothesis, which makes a failing history short."""

    history: History

    @initialize(
        policy=st.sampled_from(POLICIES),
        mode=st.sampled_from(MODES),
        queue=st.integers(1, 8),
        window=st.integers(1, 8),
        numbers=st.tuples(*[st.integers(1, 3)] * 4),
        seed=st.integers(0, 2**16),
    )
    def open(
        self, policy: str, mode: str, queue: int, window: int, numbers: tuple[int, int, int, int], seed: int
    ) -> None:
        group, batch, lookahead, staleness = numbers
        rig = Rig(
            selection=policy,
            mode=mode,
            queue_items=queue,
            window_items=min(window, queue),
            in_flight_items=queue,
            group_size=group,
            items_per_batch=batch,
            lookahead_steps=lookahead - 1,
            max_staleness_steps=staleness - 1,
            version_window_steps=staleness if policy == "version_window" else 0,
        )
        self.history = History(rig, Random(seed))

    @rule(action=st.sampled_from(ACTIONS))
    def happens(self, action: str) -> None:
        act(self.history, action)

    @rule()
    def several_groups_come(self) -> None:
        for _ in range(4):
            self.history.submit()

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.stop()
            assert disagreement(self.history.rig.record) == ""


def test_no_sequence_of_events_breaks_the_rules() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


def test_a_window_of_one_decides_as_strict_fifo() -> None:
    """Two policies, one behaviour: every decision of the one is the other's."""
    for seed in range(150):
        windowed = random_history(seed, selection="windowed_fifo", window_items=1)
        strict = random_history(seed, selection="strict_fifo")
        assert [decided for _, decided in windowed.rig.record] == [decided for _, decided in strict.rig.record]
        order = [decision.position for decision in windowed.taken]
        assert order == sorted(order)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_of_the_whole_queue_hides_nothing_of_its_cohort(mode: str) -> None:
    """W = N: of [head, head + N - 1], which in cohort mode is everything, a finished item waits only for a batch."""
    for seed in range(150):
        history = random_history(seed, selection="windowed_fifo", window_items="N", mode=mode, lookahead_steps=1000)
        history.evaluated()
        state = history.rig.state
        reach = state.head + history.config.queue_items
        ready = [p for p in history.queue if p in history.finished and p < reach]
        assert not ready or state.end_steps == state.handed
        if mode == "cohort":
            assert all(position < reach for position in history.queue)


@pytest.mark.parametrize("policy", ["windowed_fifo", "strict_fifo"])
def test_staleness_in_rolling_mode_is_bounded_by_the_queue(policy: str) -> None:
    """Without S: <= ceil((N + W - 2) / P) steps, plus what was handed over and not published at its admission."""
    seen = 0
    for seed in range(150):
        history = random_history(seed, selection=policy, lookahead_steps=1000, max_staleness_steps=0)
        for decision in history.taken:
            admitted_at_step = decision.batch - 1 - history.published_at(decision.position)
            assert admitted_at_step <= history.staleness_bound(decision.position)
            seen += 1
    assert seen > 300


def test_look_ahead_bounds_staleness_when_nothing_overtakes() -> None:
    """Admitted for a batch b <= published + 1 + S, an item is trained at most S steps late, plus what overtook it."""
    for seed in range(150):
        history = random_history(seed, selection="strict_fifo", max_staleness_steps=0)
        for decision in history.taken:
            published_then = history.published_at(decision.position)
            assert decision.batch - 1 - published_then <= history.config.lookahead_steps


@every
def test_everything_ends_when_everybody_does(policy: str, mode: str) -> None:
    """No order of endings leaves the queue stuck: let everybody end and train, and nothing stays."""
    for seed in range(60):
        history = random_history(seed, events=30, selection=policy, mode=mode, end_steps=0)
        history.evaluated()
        while history.running() or history.training:
            history.end("score")
            history.train()
        state = history.rig.state
        assert (state.in_flight, len(state.queue)) == (0, 0)
        assert not any(state.waiting.values())


@every
def test_at_the_end_the_window_shrinks_with_the_queue(policy: str, mode: str) -> None:
    """A run of three steps reaches them although the queue behind the last items stays empty, whatever W is."""
    for seed in range(40):
        history = random_history(seed, events=0, selection=policy, mode=mode, end_steps=3, max_staleness_steps=0)
        while history.handed < 3 or history.training:
            if not history.running() and not history.training:
                history.submit()
            history.end("score")
            history.train()
        state = history.rig.state
        assert (state.handed, len(state.filling)) == (3, 0)
        assert all(decision.batch <= 3 for decision in history.taken)


@every
def test_the_end_of_a_run_settles_everybody(policy: str, mode: str) -> None:
    for seed in range(60):
        history = random_history(seed, selection=policy, mode=mode)
        history.stop()
        while history.training:
            history.train()
        state = history.rig.state
        assert (state.members, state.items, state.head) == ({}, {}, state.tail)
        tally = state.tally
        assert tally.submitted == tally.trained + sum(tally.dropped.values())


@every
def test_the_record_folds_to_the_same_state_and_decides_the_same(policy: str, mode: str) -> None:
    for seed in range(40):
        history = random_history(seed, selection=policy, mode=mode)
        record = history.rig.record
        assert disagreement(record) == ""
        state, live = State(), history.rig.state
        for taken, decisions in record:
            for _ in fold(state, taken, decisions):
                pass
        names = ("head", "tail", "handed", "tally", "stalls", "window_items", "doomed", "in_flight")
        assert [getattr(state, name) for name in names] == [getattr(live, name) for name in names]
        assert list(state.members) == list(live.members)


def test_deciding_is_a_function_of_state_and_event() -> None:
    """The same inputs to a fresh state give the same decisions, and asking for a decision changes nothing."""
    history = random_history(7)
    state = State()
    for taken, decisions in history.rig.record:
        assert list(advance(state, taken)) == decisions
        assert decide(state) is None
        assert decide(state) is None


def test_a_record_made_by_other_rules_is_found_out() -> None:
    rig = Rig()
    rig.submit("e0")
    taken, decisions = rig.record[-1]
    assert decisions
    assert "input 2 (test.stream/x@3): recorded []; decided [AdmitItem" in disagreement([*rig.record[:-1], (taken, [])])


def test_the_account_notices_a_scheduler_that_breaks_the_rules() -> None:
    """The checks can fail: an item beyond the window, one consumed twice, a batch handed over too early."""
    history = random_history(3, selection="windowed_fifo", window_items=1, queue_items=6, in_flight_items=6)
    head = history.head
    with pytest.raises(AssertionError):
        history.check(TakeItem("g", head + 1, history.handed + 1, 1) if head + 1 in history.at else CloseBatch(99))
    with pytest.raises(AssertionError):
        history.check(CloseBatch(history.handed + 2))
