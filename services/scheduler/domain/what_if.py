"""What would happen: the scheduler's own rules amid an imagined platform, by discrete events. Pure.

The platform (a simulation's, or one read off a record) says what follows from each decision and when; this loop keeps
the order of time, lets deadlines tick and feeds `advance`. Refuses to decide, and to know where durations come from.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.queue import advance
from services.scheduler.domain.state import State

# When, in whole microseconds since 1970 (the clock's own grain), and what becomes known together then, in order.
Planned = tuple[int, tuple[facts.Fact, ...]]


class Platform(Protocol):
    """Everything but the scheduler."""

    def opening(self) -> Iterable[Planned]:
        """What happens whatever the scheduler decides, in any order; equal times keep the order given."""
        ...

    def follows(self, state: State, decision: Decision, now_us: int) -> Iterable[Planned]:
        """What a decision leads to, asked just before it changes `state`; nothing may lie before `now_us`."""
        ...


def what_if(platform: Platform, state: State) -> Iterator[tuple[facts.Input, list[Decision]]]:
    """Inputs and what was decided on each, until nothing more would happen; the caller may stop at any time.

    Facts about an episode that is over by then (revoked, its group dropped) don't arrive.
    """
    heap: list[tuple[int, int, tuple[facts.Fact, ...]]] = []
    count = 0
    for at_us, known in platform.opening():
        heappush(heap, (at_us, count, known))
        count += 1
    while heap or state.deadlines:
        deadline_s = state.next_deadline_s
        tick_us = None if deadline_s is None else first_tick_us(deadline_s)
        if tick_us is not None and (not heap or tick_us <= heap[0][0]):
            now_us, arriving = tick_us, (facts.Ticked(),)
        else:
            now_us, _, arriving = heappop(heap)
        now_s = now_us / 1_000_000
        for fact in arriving:
            if _over(state, fact):
                continue
            taken = facts.Input(now_s, fact, "", now_s)
            decisions: list[Decision] = []
            for decision in advance(state, taken):
                for at_us, known in platform.follows(state, decision, now_us):
                    heappush(heap, (at_us, count, known))
                    count += 1
                decisions.append(decision)
            yield taken, decisions


def first_tick_us(deadline_s: float) -> int:
    """The first microsecond at which a deadline is due, both since 1970."""
    tick_us = round(deadline_s * 1_000_000)
    while tick_us / 1_000_000 < deadline_s:
        tick_us += 1
    return tick_us


EpisodeFact = (facts.Cancelled, facts.Sealed, facts.Started, facts.Finished, facts.Failed, facts.Scored)


def _over(state: State, fact: facts.Fact) -> bool:
    if not isinstance(fact, EpisodeFact):
        return False
    member = state.live(fact.episode_id)
    return member is None or member.terminal
