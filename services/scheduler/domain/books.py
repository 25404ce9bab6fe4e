"""The books of a run, read for those who ask: where everybody in flight is, and what became of each domain's items.

Counted from the queue's own parts, not from the running totals, so that the two can be compared. Refuses to decide.
"""

from dataclasses import dataclass

from services.scheduler.domain.members import Item
from services.scheduler.domain.state import State
from services.scheduler.domain.tally import TAKEN, shares_of

STAGES: tuple[str, ...] = ("queued", "running", "finished", "batch", "training")


def in_flight_by_stage(state: State) -> dict[str, int]:
    """Unsettled training episodes by where their item is; every stage is there, also at 0."""
    counts: dict[str, int] = dict.fromkeys(STAGES, 0)
    for item in state.items.values():
        stage = "queued" if item.position is None else "finished" if item.finished else "running"
        counts[stage] += _unsettled(state, item)
    counts["batch"] = sum(_unsettled(state, item) for item in state.filling)
    counts["training"] = sum(_unsettled(state, item) for items in state.batches.values() for item in items)
    return counts


def _unsettled(state: State, item: Item) -> int:
    return sum(member.episode_id in state.members for member in item.members)


def balanced(state: State) -> bool:
    """Whether totals and queue tell the same story."""
    return not state.books_off_by and sum(in_flight_by_stage(state).values()) == len(state.members)


@dataclass(frozen=True, slots=True)
class DomainBook:
    """One domain's items: shares are of all domains' items."""

    wanted_share: float
    submitted_groups: int
    submitted_share: float
    consumed_items: int
    consumed_share: float
    taken_items: int
    dropped_items: dict[str, int]


def domain_books(state: State) -> dict[str, DomainBook]:
    """Domains in the run file's order."""
    if state.plan is None:
        return {}
    tally = state.tally
    submitted = shares_of(tally.groups_by_domain)
    achieved = tally.achieved_mix()
    books: dict[str, DomainBook] = {}
    for name, wanted in state.plan.config.shares.items():
        ends = tally.items_by_end.get(name, {})
        books[name] = DomainBook(
            wanted_share=wanted,
            submitted_groups=tally.groups_by_domain.get(name, 0),
            submitted_share=submitted.get(name, 0.0),
            consumed_items=tally.consumed_by_domain.get(name, 0),
            consumed_share=achieved.get(name, 0.0),
            taken_items=ends.get(TAKEN, 0),
            dropped_items={reason: count for reason, count in sorted(ends.items()) if reason != TAKEN},
        )
    return books
