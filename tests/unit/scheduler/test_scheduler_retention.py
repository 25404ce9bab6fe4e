"""Which episodes are pruned, and when: held against a naive account on random histories of every policy and mode."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from scheduler_history import random_history
from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.decide import PRUNED_AT_ONCE
from services.scheduler.domain.decisions import Decision, PruneEpisodes, TakeItem
from services.scheduler.domain.queue import advance, disagreement, fold
from services.scheduler.domain.state import State

POLICIES = ("windowed_fifo", "strict_fifo", "greedy", "version_window")
MODES = ("rolling", "cohort")
every = pytest.mark.parametrize(("policy", "mode"), [(policy, mode) for policy in POLICIES for mode in MODES])


class Account:
    """When each episode closed, in steps done: neither live, nor in a batch that isn't trained."""

    def __init__(self, keep_steps: int) -> None:
        self.keep_steps = keep_steps
        self.state = State()
        self.record: list[tuple[facts.Input, list[Decision]]] = []
        self.batch_of: dict[str, int] = {}
        self.over: set[int] = set()
        self.group_of: dict[str, str] = {}
        self.closed_at: dict[str, int] = {}
        self.pruned: list[str] = []

    def take(self, fact: facts.Fact, now_s: float) -> list[Decision]:
        """One input; everything that pruning says is checked as it is said. Answers what else was decided."""
        match fact:
            case facts.RunOpened(config):
                fact = facts.RunOpened(replace(config, keep_steps=self.keep_steps))
            case facts.Submitted():
                self.group_of[fact.episode_id] = fact.group_id or fact.episode_id
            case facts.StepDone(step) | facts.StepFailed(step):
                self.over.add(step)
            case _:
                pass
        taken, others, fresh = facts.Input(now_s, fact), list[Decision](), list[str]()
        decisions: list[Decision] = []
        for decision in advance(self.state, taken):
            decisions.append(decision)
            if isinstance(decision, TakeItem):
                self.batch_of[decision.group_id] = decision.batch
            if isinstance(decision, PruneEpisodes):
                fresh += decision.episode_ids
            else:
                others.append(decision)
        self.record.append((taken, decisions))
        self._note_closed()
        self._check(fresh, fact.keep_steps if isinstance(fact, facts.PruningRequested) else None)
        return others

    def _note_closed(self) -> None:
        for episode_id, group_id in self.group_of.items():
            batch = self.batch_of.get(group_id)
            untrained = batch is not None and batch not in self.over and not self.swept(batch)
            if self.state.live(episode_id) is None and not untrained:
                self.closed_at.setdefault(episode_id, self.state.completed)

    def _check(self, fresh: Sequence[str], asked: int | None) -> None:
        bounds = [bound for bound in (asked, self.keep_steps or None) if bound is not None]
        for episode_id in fresh:
            batch = self.batch_of.get(self.group_of[episode_id])
            assert self.state.live(episode_id) is None
            assert batch is None or batch in self.over or self.swept(batch), "its batch isn't trained"
            assert self.closed_at[episode_id] <= self.state.completed - min(bounds)
        self.pruned += fresh
        assert len(set(self.pruned)) == len(self.pruned) == self.state.tally.pruned
        if bounds:
            due = {e for e, closed in self.closed_at.items() if closed <= self.state.completed - min(bounds)}
            assert due <= set(self.pruned)

    def swept(self, batch: int) -> bool:
        """It was being filled when the run ended, and never became one."""
        return self.state.ended and batch > self.state.handed


@every
def test_what_is_pruned_closed_long_ago_and_nothing_else_changes(policy: str, mode: str) -> None:
    """By itself, on request, or both; and without it every other decision is the same."""
    pruned = 0
    for seed in range(60):
        history, chance = random_history(seed, selection=policy, mode=mode), Random(seed)
        account = Account(chance.choice((0, 1, 2, 4)))
        if chance.random() < 0.3:
            history.stop()
            history.train()
        for taken, decided in history.rig.record:
            assert account.take(taken.fact, taken.taken_at_s) == decided
            if chance.random() < 0.1:
                assert account.take(facts.PruningRequested(chance.choice((0, 1, 3))), taken.taken_at_s) == []
        assert disagreement(account.record) == ""
        pruned += len(account.pruned)
    assert pruned > 200, "histories in which nothing goes prove little"


def test_the_record_folds_to_the_same_state() -> None:
    """Also where what is closed, and what of it is pruned, is concerned."""
    for seed in range(40):
        history, account = random_history(seed), Account(1)
        for taken, _ in history.rig.record:
            account.take(taken.fact, taken.taken_at_s)
        folded = State()
        for taken, decided in account.record:
            assert list(fold(folded, taken, decided)) == decided
        assert (folded.closed, folded.retention_events) == (account.state.closed, account.state.retention_events)
        assert folded.tally == account.state.tally


def trained(rig: Rig, steps: int) -> None:
    for step in range(1, steps + 1):
        for name in (f"{step}x", f"{step}y"):
            rig.submit(name)
            rig.finish(name)
        rig.step(step)


@pytest.mark.parametrize(
    ("keep_steps", "left"), [(1, {4}), (2, {3, 4}), (3, {2, 3, 4}), (4, {1, 2, 3, 4}), (0, {1, 2, 3, 4})]
)
def test_the_bound_counts_steps(keep_steps: int, left: set[int]) -> None:
    """Four steps are done, two episodes each: keeping k leaves those of the last k; 0 keeps everything."""
    rig = Rig(keep_steps=keep_steps)
    trained(rig, 4)
    assert {step for step, _ in rig.state.closed} == left
    assert len(rig.state.closed) == 2 * len(left)
    assert disagreement(rig.record) == ""


def test_a_request_goes_beyond_what_the_run_keeps_only_once() -> None:
    """Asked for 1, where the run keeps 3: after the next step it is the run's own bound again."""
    rig = Rig(keep_steps=3)
    trained(rig, 4)
    assert rig.feed(facts.PruningRequested(1)) == [PruneEpisodes(("2x", "2y", "3x", "3y"), 1)]
    assert rig.feed(facts.PruningRequested(5)) == []
    for name in ("5x", "5y"):
        rig.submit(name)
        rig.finish(name)
    assert not [decision for decision in rig.step(5) if isinstance(decision, PruneEpisodes)]
    assert [step for step, _ in rig.state.closed] == [4, 4, 5, 5]


def test_a_member_that_is_not_eligible_waits_for_its_batch() -> None:
    """It is dropped when its item is taken; the manifest names its trajectory until the step is done."""
    rig = Rig(group_size=3, items_per_batch=1)
    rig.submit_group("g")
    rig.finish("g.0", 1.0)
    rig.finish("g.1", 0.0)
    rig.finish("g.2", 0.5, tokens=0)
    assert rig.state.live("g.2") is None and rig.state.handed == 1
    assert rig.feed(facts.PruningRequested(0)) == []
    rig.step(1)
    assert rig.feed(facts.PruningRequested(0)) == [PruneEpisodes(("g.0", "g.1", "g.2"), 0)]


def test_many_go_in_several_decisions() -> None:
    """An event has to fit a broker: 200 episodes each, in the order in which they closed."""
    rig = Rig()
    count = 2 * PRUNED_AT_ONCE + 50
    rig.feed(facts.RunEnded("stopped"))
    for number in range(count):
        rig.submit(f"e{number}")
    pruned = [one for one in rig.feed(facts.PruningRequested(0)) if isinstance(one, PruneEpisodes)]
    assert [len(one.episode_ids) for one in pruned] == [200, 200, 50]
    assert [e for one in pruned for e in one.episode_ids] == [f"e{number}" for number in range(count)]
