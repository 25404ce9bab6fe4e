"""How inputs become decisions, and how a recorded queue is folded or checked. The whole core in three functions.

The service, a replay and a simulator all call `advance`; a restart calls `fold`, which never decides, so that a
record made by older rules is read as it was made; `disagreement` tells whether today's rules would have decided
the same.
"""

from collections.abc import Iterable, Iterator, Sequence

from services.scheduler.domain.apply import apply_fact
from services.scheduler.domain.apply_decision import apply_decision
from services.scheduler.domain.decide import decide
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.facts import Input
from services.scheduler.domain.state import State


def advance(state: State, taken: Input) -> Iterator[Decision]:
    """Take an input; yields each decision just before it changes the state. Must be iterated to its end."""
    apply_fact(state, taken)
    while (decision := decide(state)) is not None:
        yield decision
        apply_decision(state, decision)


def fold(state: State, taken: Input, decisions: Iterable[Decision]) -> Iterator[Decision]:
    """Take an input and the decisions recorded with it; like `advance`, but as it was then decided."""
    apply_fact(state, taken)
    for decision in decisions:
        yield decision
        apply_decision(state, decision)


def disagreement(record: Iterable[tuple[Input, Sequence[Decision]]]) -> str:
    """The first place where the rules decide otherwise than the record says; empty when they agree throughout."""
    state = State()
    for index, (taken, recorded) in enumerate(record):
        decided = list(advance(state, taken))
        if decided != list(recorded):
            return f"input {index} ({taken.event_id or 'tick'}): recorded {list(recorded)}; decided {decided}"
    return ""
