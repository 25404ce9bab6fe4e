"""Defaults and checks of a run file's `scheduling` section. It refuses to decide: the scheduler does."""

import math
import re

from forgerl.common.v1 import run_pb2

from services.contract.bounds import FINITE, LONGEST_S, MOST_ITEMS, within

DEFAULTS = {
    "group_size": 8,
    "items_per_batch": 8,
    "queue_items": 32,
    "in_flight_items": 16,
    "deadline_s": 120.0,
    "max_staleness_steps": 0,
    "drift_bound": 0.05,
    "fleet_weight": 1.0,
    "keep_steps": 0,
}
WINDOW_SHARE = 0.3
"""The share of N that is the window where none is given (MiniMax, Forge, 2026)."""
AUTO_WINDOW = "auto"
MAX_KEEP_STEPS = 100_000
"""More steps than a run has: whoever means everything says 0."""
MOST_MEMBERS = 4096
"""A group is submitted, waited for and trained as a whole."""
_SHARE = re.compile(r"\d*\.?\d+")


def fill_scheduling(scheduling: run_pb2.SchedulingSpec) -> None:
    """Settle what follows from other fields; the plain defaults are filled in already."""
    scheduling.mode = scheduling.mode or run_pb2.SCHEDULING_MODE_ROLLING
    scheduling.policy = scheduling.policy or run_pb2.SELECTION_POLICY_WINDOWED_FIFO
    if not scheduling.HasField("window_items"):
        scheduling.window_items = _window_items(scheduling)
    if not scheduling.HasField("lookahead_steps"):
        scheduling.lookahead_steps = _lookahead_steps(scheduling)
    if not scheduling.HasField("version_window_steps"):
        # Nothing falls out of a window as wide as the look-ahead, unless it was overtaken.
        versions = scheduling.policy == run_pb2.SELECTION_POLICY_VERSION_WINDOW
        scheduling.version_window_steps = scheduling.lookahead_steps if versions else 0


def _window_items(scheduling: run_pb2.SchedulingSpec) -> int:
    """The window that the policy implies: 1, N, or a share of N, rounded up."""
    match scheduling.policy:
        case run_pb2.SELECTION_POLICY_STRICT_FIFO:
            return 1
        case run_pb2.SELECTION_POLICY_GREEDY | run_pb2.SELECTION_POLICY_VERSION_WINDOW:
            return scheduling.queue_items
        case _:
            share = window_share(scheduling.window)
            return share_items(WINDOW_SHARE if share is None else share, scheduling.queue_items)


def _lookahead_steps(scheduling: run_pb2.SchedulingSpec) -> int:
    """A cohort is generated as a whole: all the steps that it feeds are looked ahead to."""
    if scheduling.mode != run_pb2.SCHEDULING_MODE_COHORT:
        return 1
    return max(0, math.ceil(scheduling.queue_items / max(1, scheduling.items_per_batch)) - 1)


def window_share(window: str) -> float | None:
    """The share of N that `window` names, in (0, 1]; None where it names none."""
    if not _SHARE.fullmatch(window):
        return None
    return share if 0.0 < (share := float(window)) <= 1.0 else None


def share_items(share: float, queue_items: int) -> int:
    """Items of a window that is a share of the queue, rounded up, at least one."""
    return max(1, math.ceil(share * queue_items - 1e-9))


def check_scheduling(spec: run_pb2.RunSpec) -> list[str]:
    """Every problem of the section in a resolved spec."""
    scheduling = spec.scheduling
    queue = max(1, scheduling.queue_items)
    budget_s = max((domain.agent_timeout_s for domain in spec.domains), default=0.0)
    problems = [
        *within("scheduling.group_size", scheduling.group_size, 2, MOST_MEMBERS),
        *within("scheduling.queue_items", scheduling.queue_items, 1, MOST_ITEMS),
        *within("scheduling.items_per_batch", scheduling.items_per_batch, 1, queue),
        *within("scheduling.window_items", scheduling.window_items, 1, queue),
        *within("scheduling.in_flight_items", scheduling.in_flight_items, 1, queue),
        *within("scheduling.drift_bound", scheduling.drift_bound, 0.0, math.inf, open_low=True),
        *within("scheduling.fleet_weight", scheduling.fleet_weight, 0.0, FINITE, open_low=True),
        *within("scheduling.keep_steps", scheduling.keep_steps, 0, MAX_KEEP_STEPS),
        *_check_window(scheduling),
    ]
    if not budget_s < scheduling.deadline_s <= LONGEST_S:
        allowed = f"above the longest agent_timeout_s ({budget_s:g}), {LONGEST_S:g} at most"
        problems.append(f"scheduling.deadline_s: given {scheduling.deadline_s:g}; allowed {allowed}")
    return problems


def _check_window(scheduling: run_pb2.SchedulingSpec) -> list[str]:
    """A policy refuses the settings that it would ignore."""
    policy = run_pb2.SelectionPolicy.Name(scheduling.policy).removeprefix("SELECTION_POLICY_").lower()
    problems: list[str] = []
    if scheduling.version_window_steps and policy != "version_window":
        given = scheduling.version_window_steps
        problems.append(f"scheduling.version_window_steps: given {given} with {policy}; allowed with version_window")
    if policy != "windowed_fifo":
        if scheduling.window:
            problems.append(f"scheduling.window: given {scheduling.window!r} with {policy}; allowed with windowed_fifo")
        if scheduling.window_items != (implied := _window_items(scheduling)):
            problems.append(f"scheduling.window_items: given {scheduling.window_items}; {policy} implies {implied}")
        return problems
    if scheduling.window in ("", AUTO_WINDOW):
        return problems
    share = window_share(scheduling.window)
    if share is None:
        problems.append(f"scheduling.window: given {scheduling.window!r}; allowed auto, or a share of N above 0..1")
    elif (items := share_items(share, scheduling.queue_items)) != scheduling.window_items:
        problems.append(
            f"scheduling.window_items: given {scheduling.window_items} beside window {scheduling.window!r},"
            f" which is {items}; allowed one of the two"
        )
    return problems
