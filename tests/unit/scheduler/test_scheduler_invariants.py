"""What must hold for every order of events: properties of windowed FIFO and of the books, over random histories."""

import math
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, DropItem, TakeItem
from services.scheduler.domain.queue import disagreement, fold
from services.scheduler.domain.state import State


@dataclass
class History:
    """A random run: items of one episode, ended in any order, trained with any delay."""

    rig: Rig
    running: list[str] = field(default_factory=list)
    submitted: int = 0
    consumed_order: list[int] = field(default_factory=list)
    entered_at: dict[int, int] = field(default_factory=dict)
    policy_at: dict[int, int] = field(default_factory=dict)
    lag_at: dict[int, int] = field(default_factory=dict)
    handed: int = 0
    staleness: dict[int, int] = field(default_factory=dict)
    training: list[int] = field(default_factory=list)

    def note(self, head: int, decisions: list[object]) -> None:
        window = self.rig.config.window_items
        for decision in decisions:
            match decision:
                case AdmitItem(group_id, position):
                    self.running.append(group_id)
                    self.entered_at[position] = len(self.consumed_order)
                    self.policy_at[position] = self.rig.state.published
                    self.lag_at[position] = self.handed - self.rig.state.published
                    assert position - head <= self.rig.config.queue_items + window - 2
                case TakeItem(_, position, batch, distance):
                    assert position - head == distance <= window - 1
                    self.staleness[position] = batch - 1 - self.policy_at[position]
                    self.consume(position)
                case DropItem(_, int(position), _):
                    assert position - head <= window - 1
                    self.consume(position)
                case CloseBatch(batch):
                    self.training.append(batch)
                    self.handed = batch
                case _:
                    pass
            head = self.head()

    def consume(self, position: int) -> None:
        lag = len(self.consumed_order) - self.entered_at[position]
        assert lag <= self.rig.config.queue_items + self.rig.config.window_items - 2
        self.consumed_order.append(position)

    def head(self) -> int:
        consumed = set(self.consumed_order)
        return next(p for p in range(len(consumed) + 1) if p not in consumed)

    def feed(self, fact: facts.Fact) -> None:
        self.note(self.head(), self.rig.feed(fact))

    def submit(self) -> None:
        self.feed(facts.Submitted(f"e{self.submitted}", "", "a"))
        self.submitted += 1

    def end(self, index: int, *, fail: bool) -> None:
        if not self.running:
            return
        episode = self.running.pop(index % len(self.running))
        if fail:
            self.feed(facts.Failed(episode, 4, cancelled=False))
            return
        position = next(p for p, item in self.rig.state.queue.items() if item.group_id == episode)
        self.feed(facts.Scored(episode, 1.0, "solved", b""))
        self.feed(facts.Finished(episode, 1, 1.0))
        self.feed(facts.Sealed(episode, b"", 3, self.policy_at[position]))

    def train(self) -> None:
        if self.training:
            batch = self.training.pop(0)
            self.feed(facts.StepDone(batch, ()))
            self.feed(facts.PolicyPublished(batch))


ACTIONS = ("end", "end", "end", "fail", "train", "submit")


@st.composite
def histories(draw: st.DrawFn, *, window: int | None = None, lookahead: int | None = None) -> History:
    """Long ones: a backlog first, then 60 to 150 events. W = `window`, or N when it is 0, or anything."""
    queue_items = draw(st.integers(1, 12))
    rig = Rig(
        queue_items=queue_items,
        window_items=queue_items if window == 0 else window or draw(st.integers(1, queue_items)),
        in_flight_items=draw(st.integers(1, queue_items)),
        items_per_batch=draw(st.integers(1, 4)),
        lookahead_steps=draw(st.integers(0, 4)) if lookahead is None else lookahead,
    )
    history = History(rig)
    # One number for the whole history keeps it long; hypothesis would rather make it short.
    chance = Random(draw(st.integers(0, 2**32)))
    trains = draw(st.booleans())
    for _ in range(draw(st.integers(0, 60))):
        history.submit()
    for _ in range(draw(st.integers(60, 150))):
        match chance.choice(ACTIONS):
            case "submit":
                history.submit()
            case "train":
                if trains:
                    history.train()
            case action:
                history.end(chance.randrange(50), fail=action == "fail")
    return history


@settings(max_examples=80, deadline=None)
@given(histories())
def test_distance_lag_head_and_books(history: History) -> None:
    """The bounds are asserted at every decision (see History); here, what must hold at the end."""
    state = history.rig.state
    assert state.head == history.head()
    assert sorted(history.consumed_order) == sorted(set(history.consumed_order)), "nothing is consumed twice"
    assert len(state.queue) <= history.rig.config.queue_items
    assert state.in_flight == sum(not item.finished for item in state.queue.values())
    assert state.in_flight <= history.rig.config.in_flight_items
    assert state.doomed == sum(bool(item.doom) for item in state.queue.values())
    assert state.handed <= state.completed + 1 + history.rig.config.lookahead_steps


@settings(max_examples=60, deadline=None)
@given(histories(window=1))
def test_window_of_one_consumes_in_order(history: History) -> None:
    assert history.consumed_order == sorted(history.consumed_order)


@settings(max_examples=60, deadline=None)
@given(histories(window=0, lookahead=1000))
def test_window_of_the_whole_queue_never_hides_anything(history: History) -> None:
    """Greedy: with W = N, a finished item inside [head, head + N - 1] waits only for a batch that wants it."""
    state = history.rig.state
    reach = state.head + history.rig.config.queue_items
    assert not [p for p, item in state.queue.items() if item.finished and p < reach]


@settings(max_examples=60, deadline=None)
@given(histories(lookahead=1000))
def test_staleness_in_rolling_mode_is_bounded_by_the_queue(history: History) -> None:
    """<= ceil((N + W - 2) / P) steps, plus the batches handed over but not yet published when it was admitted."""
    config = history.rig.config
    bound = math.ceil((config.queue_items + config.window_items - 2) / config.items_per_batch)
    assert all(steps <= bound + history.lag_at[position] for position, steps in history.staleness.items())


@settings(max_examples=60, deadline=None)
@given(histories())
def test_look_ahead_bounds_staleness_when_nothing_overtakes(history: History) -> None:
    """An item is admitted for a batch b <= published + 1 + S; overtaking by at most W - 1 items can add to that."""
    config = history.rig.config
    bound = config.lookahead_steps + math.ceil((config.window_items - 1) / config.items_per_batch)
    assert all(steps <= bound for steps in history.staleness.values())


@settings(max_examples=40, deadline=None)
@given(histories())
def test_everything_ends_when_everybody_does(history: History) -> None:
    """No order of endings leaves the queue stuck: let everything end and train, and nothing stays."""
    while history.running or history.training:
        history.end(0, fail=False)
        history.train()
    state = history.rig.state
    assert state.in_flight == 0
    assert not state.queue
    assert not any(state.waiting.values())


@settings(max_examples=40, deadline=None)
@given(histories())
def test_the_record_folds_to_the_same_state_and_decides_the_same(history: History) -> None:
    record = history.rig.record
    assert disagreement(record) == ""
    state = State()
    for taken, decisions in record:
        for _ in fold(state, taken, decisions):
            pass
    live = history.rig.state
    assert (state.head, state.tail, state.handed, state.tally, state.stalls) == (
        live.head,
        live.tail,
        live.handed,
        live.tally,
        live.stalls,
    )
    assert list(state.members) == list(live.members)


def test_a_record_made_by_other_rules_is_found_out() -> None:
    rig = Rig()
    rig.submit("e0")
    taken, decisions = rig.record[-1]
    assert decisions
    assert "input 2 (test.stream/x@3): recorded []; decided [AdmitItem" in disagreement([*rig.record[:-1], (taken, [])])
