"""Which episodes are old enough to be pruned, held against the scheduler's own state on whole simulated runs."""

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.scheduler.durations import draw
from loadtests.scheduler.platform import Imagined
from loadtests.scheduler.traces import fitted
from services.cli.pool.index import PoolIndex
from services.cli.pool.pruning import old_episodes
from services.scheduler.adapters.records import to_record
from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.queue import advance
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if
from services.scheduler.ports import Entry


def config(mode: str, selection: str, deadline_s: float) -> RunConfig:
    """Groups of two in batches of two; a deadline that revokes the slowest, and groups without spread."""
    return RunConfig(
        domains=(("agent", 1.0),),
        group_size=2,
        items_per_batch=2,
        queue_items=8,
        window_items=1 if selection == "strict_fifo" else 3,
        in_flight_items=4,
        lookahead_steps=4,
        deadline_s=deadline_s,
        max_staleness_steps=0,
        min_reward_spread=0.01,
        selection=selection,
        mode=mode,
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    mode=st.sampled_from(("rolling", "cohort")),
    selection=st.sampled_from(("windowed_fifo", "strict_fifo", "greedy")),
    stop=st.integers(20, 400),
    ended=st.booleans(),
)
def test_nothing_in_flight_or_untrained_is_ever_old(
    seed: int, mode: str, selection: str, stop: int, ended: bool
) -> None:
    """At any moment of any run, and also after its end has swept the queue."""
    items = draw("lognormal", 200, seed, fitted())
    platform = Imagined(config(mode, selection, 3 * items.mean_s), items.durations_us, round(items.mean_s * 0.2e6))
    state, index = State(), PoolIndex("r")
    history = what_if(platform, state)
    for taken, decisions in islice(history, stop):
        index.take(to_record(Entry(taken, tuple(decisions), "")))
    if ended:
        taken = facts.Input(state.now_s, facts.RunEnded("stopped"))
        index.take(to_record(Entry(taken, tuple(advance(state, taken)), "")))
    assert index.steps == state.completed
    seen = -1
    for keep_steps in range(state.completed + 2, -1, -1):
        old = old_episodes(index, keep_steps)
        assert not [row.episode_id for row in old if state.live(row.episode_id) is not None]
        assert len(old) >= seen, "a smaller bound frees no less"
        seen = len(old)
        if keep_steps > state.completed:
            assert not old
    settled = len(index.episodes) - len(state.members) - len(state.evaluations)
    assert seen == settled, "and in the end all that is settled is old"


@pytest.mark.parametrize(("keep_steps", "batches"), [(1, {1, 2, 3}), (2, {1, 2}), (3, {1}), (4, set())])
def test_the_bound_counts_steps(keep_steps: int, batches: set[int]) -> None:
    """Four steps are done: keeping k leaves the batches of the last k."""
    items = draw("narrow", 200, 0, fitted())
    platform = Imagined(config("rolling", "windowed_fifo", 1e9), items.durations_us, round(items.mean_s * 0.2e6))
    index = PoolIndex("r")
    for taken, decisions in what_if(platform, State()):
        index.take(to_record(Entry(taken, tuple(decisions), "")))
        if index.steps == 4:
            break
    assert {row.batch for row in old_episodes(index, keep_steps) if row.batch is not None} == batches
