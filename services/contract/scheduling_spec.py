"""Defaults and checks of a run file's `scheduling` section. It refuses to decide: the scheduler does."""

import math

from forgerl.common.v1 import run_pb2

from services.contract.bounds import UINT32_MAX, within

DEFAULTS = {
    "group_size": 8,
    "items_per_batch": 8,
    "queue_items": 32,
    "in_flight_items": 16,
    "lookahead_steps": 1,
    "deadline_s": 120.0,
    "max_staleness_steps": 0,
}
WINDOW_SHARE = 0.3
"""The share of N that is the window where none is given (MiniMax, Forge, 2026)."""


def fill_scheduling(scheduling: run_pb2.SchedulingSpec) -> None:
    """Settle what follows from other fields; the plain defaults are filled in already."""
    if not scheduling.HasField("window_items"):
        scheduling.window_items = max(1, math.ceil(WINDOW_SHARE * scheduling.queue_items - 1e-9))
    scheduling.mode = scheduling.mode or run_pb2.SCHEDULING_MODE_ROLLING
    scheduling.policy = scheduling.policy or run_pb2.SELECTION_POLICY_WINDOWED_FIFO


def check_scheduling(spec: run_pb2.RunSpec) -> list[str]:
    """Every problem of the section in a resolved spec."""
    scheduling = spec.scheduling
    queue = max(1, scheduling.queue_items)
    budget_s = max((domain.agent_timeout_s for domain in spec.domains), default=0.0)
    problems = [
        *within("scheduling.group_size", scheduling.group_size, 2, UINT32_MAX),
        *within("scheduling.queue_items", scheduling.queue_items, 1, UINT32_MAX),
        *within("scheduling.items_per_batch", scheduling.items_per_batch, 1, queue),
        *within("scheduling.window_items", scheduling.window_items, 1, queue),
        *within("scheduling.in_flight_items", scheduling.in_flight_items, 1, queue),
    ]
    if not budget_s < scheduling.deadline_s < math.inf:
        allowed = f"above the longest agent_timeout_s ({budget_s:g})"
        problems.append(f"scheduling.deadline_s: given {scheduling.deadline_s:g}; allowed {allowed}")
    return problems
