"""Facts of every kind, repeated and in any order, as topics and crashes may bring them: the books must add up."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.queue import disagreement
from services.scheduler.domain.state import State


def any_fact(chance: Random, rig: Rig) -> facts.Fact:
    episode = f"g{chance.randrange(8)}.{chance.randrange(4)}"
    evaluation = f"v{chance.randrange(6)}"
    whom = evaluation if chance.random() < 0.2 else episode
    options: list[facts.Fact] = [
        facts.Submitted(episode, episode.partition(".")[0], chance.choice(("a", "b", "c"))),
        facts.Submitted(episode, episode.partition(".")[0], "a"),
        facts.Submitted(evaluation, "", "a", pinned_step=rig.state.published + chance.choice((-1, 0, 0, 1))),
        facts.Cancelled(whom),
        facts.Sealed(whom, b"", chance.choice((0, 3, 3)), 0),
        facts.Sealed(whom, b"", 3, max(0, rig.state.published)),
        facts.Finished(whom, 1, 1.0),
        facts.Finished(whom, 1, 1.0),
        facts.Scored(whom, chance.random(), "solved", b""),
        facts.Scored(whom, chance.random(), "solved", b""),
        facts.ScoringFailed(whom),
        facts.Failed(whom, 4, cancelled=chance.random() < 0.5),
        facts.StepDone(chance.randint(1, rig.state.handed + 1), ()),
        facts.StepFailed(chance.randint(1, rig.state.handed + 1)),
        facts.PolicyPublished(chance.randint(0, rig.state.completed)),
        facts.Ticked(),
        facts.Started(whom),
    ]
    if chance.random() < 0.03:
        ends: list[facts.Fact] = [facts.RunEnded("stopped"), facts.RunReopened(0), facts.RunOpened(rig.config)]
        return chance.choice(ends)
    return chance.choice(options)


def check(state: State) -> None:
    """Everything that is counted in passing equals what is counted anew."""
    live = state.evaluations.values()
    assert state.evaluations_in_flight == sum(member.admitted for member in live)
    assert sum(map(len, state.evaluations_waiting.values())) == sum(not member.admitted for member in live)
    assert state.in_flight == sum(not item.finished for item in state.queue.values())
    assert state.doomed == sum(bool(item.doom) for item in state.queue.values())
    assert not state.to_revoke
    assert not state.to_drop
    assert set(state.queue) <= set(range(state.head, state.tail))
    assert all(state.head < position < state.tail for position in state.passed)
    assert len(state.queue) + len(state.passed) == state.tail - state.head
    known = {m.episode_id for item in state.items.values() for m in item.members}
    held = [*state.filling, *(item for items in state.batches.values() for item in items)]
    known |= {m.episode_id for item in held for m in item.eligible}
    assert set(state.members) == known


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 3))
def test_any_order_of_any_facts(seed: int, opened: bool, group_size: int) -> None:
    chance = Random(seed)
    rig = Rig(
        opened=opened,
        domains=(("a", 2.0), ("b", 1.0)),
        group_size=group_size,
        in_flight_items=chance.randint(1, 4),
        queue_items=4,
        window_items=chance.randint(1, 4),
        lookahead_steps=chance.randint(0, 2),
        max_staleness_steps=chance.randint(0, 2),
    )
    for _ in range(150):
        rig.now_s += chance.choice((0.0, 1.0, 15.0))
        fact = any_fact(chance, rig)
        for _ in range(chance.choice((1, 1, 2))):
            rig.feed(fact)
        check(rig.state)
    assert disagreement(rig.record) == ""
