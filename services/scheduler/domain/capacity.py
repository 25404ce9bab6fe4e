"""How many more groups a client should submit, by domain. Pure; refuses to promise that they will be trained.

Decided here: a domain should have ceil(N * share) groups that are not admitted yet, or fewer when the end of the run is
nearer than that, but at least one as long as batches are missing: an item that is dropped must be replaced at once.
"""

import math
from dataclasses import dataclass

from services.scheduler.domain.state import Plan, State


@dataclass(frozen=True, slots=True)
class Wanted:
    """By domain: groups that wait (closed or not), groups still wanted, and groups that should exist in all."""

    waiting: dict[str, int]
    wanted: dict[str, int]
    target: dict[str, int]


def capacity(state: State) -> Wanted:
    """What the run could still use; zeros once it has ended or all its batches are handed over."""
    plan = state.plan
    if plan is None:
        return Wanted({}, {}, {})
    waiting = {name: len(items) for name, items in state.waiting.items()}
    for item in state.items.values():
        if not item.closed:
            waiting[item.domain] += 1
    goal = _goal(state, plan)
    wanted: dict[str, int] = {}
    for name, share in plan.config.shares.items():
        needed = max(1, math.ceil(goal * share - 1e-9)) if goal is not None and share > 0 else 0
        wanted[name] = max(0, needed - waiting[name])
    target = {name: count + state.tally.groups_by_domain.get(name, 0) for name, count in wanted.items()}
    return Wanted(waiting, wanted, target)


def _goal(state: State, plan: Plan) -> int | None:
    """Groups that should be waiting in all; None when nothing is wanted any more."""
    if state.ended:
        return None
    if not state.end_steps:
        return plan.config.queue_items
    if state.handed >= state.end_steps:
        return None
    missing = (state.end_steps - state.handed) * plan.config.items_per_batch
    on_the_way = len(state.filling) + len(state.queue) - state.doomed
    return min(plan.config.queue_items, max(0, missing - on_the_way))
