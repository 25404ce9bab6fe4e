"""How fast the scheduler's decisions are, and what its state weighs. Refuses to guess: all is measured where it runs.

- A decision: from asking for it to having it applied, with a long queue of finished items that a narrow window hides.
- Replay: records as the event store holds them, parsed, decided anew and compared with what was decided.
- Weight: the state of a run with so many episodes in flight, ids and causes as long as the service's.
"""

import gc
import itertools
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from forgerl.scheduler.v1.queue_pb2 import QueueAdvanced

from loadtests.scheduler.durations import Items
from loadtests.scheduler.platform import START_US, Imagined
from services.scheduler.adapters.records import from_record, to_record
from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.queue import advance
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if
from services.scheduler.ports import Entry

_ROUNDS = 10
_WRITER = "scheduler-01HZX3J9M2T4V6W8Y0"


@dataclass(frozen=True, slots=True)
class Speed:
    """Decisions in microseconds of wall-clock, the tail of all rounds and of the quietest; events a second of processor
    time, and the wall-clock that they took; megabytes (1e6 bytes).
    """

    decision_p50_us: float
    decision_p99_us: float
    decision_p99_all_us: float
    decisions: int
    queued_items: int
    replay_events: int
    replay_events_per_s: float
    replay_wall_s: float
    inflight_episodes: int
    inflight_state_mb: float


def schedule(queue_items: int, in_flight_items: int, window_items: int, items_per_batch: int) -> RunConfig:
    """A rolling run without bounds other than these."""
    return RunConfig(
        domains=(("reasoning", 2.0), ("agent", 1.0)),
        group_size=1,
        items_per_batch=items_per_batch,
        queue_items=queue_items,
        window_items=window_items,
        in_flight_items=in_flight_items,
        lookahead_steps=2 + queue_items // items_per_batch,
        deadline_s=1e9,
        max_staleness_steps=0,
        min_reward_spread=0.0,
    )


def decisions_us(items: Items, queued_items: int, wanted: int) -> np.ndarray:
    """Microseconds of single decisions while `queued_items` positions are admitted and not consumed."""
    state, number = State(), itertools.count()
    config = schedule(queued_items, queued_items, max(1, queued_items * 3 // 10), 64)
    for fact in (facts.RunOpened(config), facts.PolicyPublished(0)):
        _drain(state, fact)
    for _ in range(queued_items + 1000):
        _drain(state, facts.Submitted(f"episode-{next(number):022d}", "", "agent"))
    order = np.argsort(np.array(items.durations_us[:queued_items]))
    spent_ns: list[int] = []
    step = 0
    rounds = itertools.cycle(order.tolist())
    waiting = {int(position): name for position, name in enumerate(_running(state))}
    while len(spent_ns) < wanted:
        name = waiting.pop(next(rounds), "")
        if not name:
            waiting = {int(position): name for position, name in enumerate(_running(state))}
            continue
        for fact in (
            facts.Finished(name, 1, 1.0),
            facts.Sealed(name, b"", 1, step),
            facts.Scored(name, 1.0, "solved", b""),
            facts.Submitted(f"episode-{next(number):022d}", "", "agent"),
        ):
            spent_ns += _timed(state, fact)
        if state.handed > step:
            step = state.handed
            spent_ns += _timed(state, facts.StepDone(step, ()))
            spent_ns += _timed(state, facts.PolicyPublished(step))
    return np.array(spent_ns) / 1000.0


def _running(state: State) -> list[str]:
    return [item.group_id for item in state.queue.values() if not item.finished]


def _drain(state: State, fact: facts.Fact) -> None:
    for _ in advance(state, facts.Input(START_US / 1e6, fact)):
        pass


def _timed(state: State, fact: facts.Fact) -> list[int]:
    """Nanoseconds of each decision; the last question, answered with none, is counted with the fact to the first."""
    spent_ns: list[int] = []
    started_ns = time.perf_counter_ns()
    for _ in advance(state, facts.Input(START_US / 1e6, fact)):
        now_ns = time.perf_counter_ns()
        spent_ns.append(now_ns - started_ns)
        started_ns = now_ns
    return spent_ns


def records(items: Items, engines: int, wanted: int) -> Iterator[bytes]:
    """Records of a run, as the event store holds them."""
    config = schedule(4 * engines, engines, max(1, engines * 12 // 10), max(1, engines // 2))
    step_us = round(0.4 * items.mean_s * 1e6)
    imagined = what_if(Imagined(config, items.durations_us, step_us), State())
    for number, (taken, decided) in enumerate(itertools.islice(imagined, wanted)):
        event = facts.Input(taken.taken_at_s, taken.fact, f"gateway.episode/{number}@1", taken.taken_at_s)
        yield to_record(Entry(event, tuple(decided), _WRITER)).SerializeToString()


def replayed(stored: Iterator[bytes]) -> tuple[int, float, float]:
    """Events replayed, seconds of processor time and of wall-clock, their making not counted. Raises ValueError where
    decisions differ.
    """
    state, count, busy_ns, spent_ns = State(), 0, 0, 0
    while chunk := list(itertools.islice(stored, 20_000)):
        started_ns, begun_ns = time.perf_counter_ns(), time.thread_time_ns()
        for record in chunk:
            entry = from_record(QueueAdvanced.FromString(record))
            decided = tuple(advance(state, entry.taken))
            if decided != entry.decisions:
                raise ValueError(f"record {count}: recorded {entry.decisions}; decided {decided}")
            count += 1
        busy_ns += time.thread_time_ns() - begun_ns
        spent_ns += time.perf_counter_ns() - started_ns
    return count, busy_ns / 1e9, spent_ns / 1e9


def state_mb(episodes: int) -> float:
    """Megabytes of the state with so many episodes admitted and running, in groups of eight."""
    config = RunConfig(
        domains=(("agent", 1.0),),
        group_size=8,
        items_per_batch=64,
        queue_items=episodes // 8,
        window_items=episodes // 8,
        in_flight_items=episodes // 8,
        lookahead_steps=episodes,
        deadline_s=3600.0,
        max_staleness_steps=0,
        min_reward_spread=0.0,
    )
    gc.collect()
    tracemalloc.start()
    try:
        state = State()
        for fact in (facts.RunOpened(config), facts.PolicyPublished(0)):
            _drain(state, fact)
        for number in range(episodes):
            name, group = f"episode-{number:026d}", f"group-{number // 8:026d}"
            causes = (f"correlation-{number:026d}", f"00-{number:032x}-{number:016x}-01")
            taken = facts.Submitted(name, group, "agent", None, *causes)
            for _ in advance(state, facts.Input(START_US / 1e6, taken, f"gateway.episode/{name}@1")):
                pass
        if state.in_flight * 8 != episodes:
            raise ValueError(f"in flight: {state.in_flight * 8} episodes; wanted {episodes}")
        return tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


def measure(items: Items, *, events: int, queued_items: int, episodes: int) -> Speed:
    """All of it; `items` must be enough for the queue, and a third of the events. On a shared machine a decision that
    was put aside in its midst takes milliseconds, so the quietest of ten rounds is what deciding takes.
    """
    decided_us = decisions_us(items, queued_items, 10_000 if events < 100_000 else 40_000)
    rounds = np.array_split(decided_us, _ROUNDS)
    count, busy_s, wall_s = replayed(records(items, 1_000, events))
    return Speed(
        decision_p50_us=float(np.quantile(decided_us, 0.5)),
        decision_p99_us=float(min(np.quantile(one, 0.99) for one in rounds)),
        decision_p99_all_us=float(np.quantile(decided_us, 0.99)),
        decisions=len(decided_us),
        queued_items=queued_items,
        replay_events=count,
        replay_events_per_s=count / busy_s,
        replay_wall_s=wall_s,
        inflight_episodes=episodes,
        inflight_state_mb=state_mb(episodes),
    )
