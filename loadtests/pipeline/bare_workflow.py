"""The workflow that bare Temporal runs: of an episode's shape, with steps that do nothing.

A module of its own: the sandbox would execute the main module anew for every workflow.
"""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow


@dataclass(frozen=True, slots=True)
class Start:
    """As large as what an episode's workflow is given."""

    episode_id: str
    run_id: str
    call_timeout_s: float
    patience_s: float
    correlation_id: str
    causation_id: str
    traceparent: str


@dataclass(frozen=True, slots=True)
class Plan:
    """As large as what it is told by its first activity."""

    agent: str
    style: str
    answer: str


@activity.defn
async def open_bare(start: Start) -> Plan:
    """Does nothing."""
    return Plan("recorded", "recorded", start.episode_id)


@activity.defn
async def end_bare(start: Start, plan: Plan) -> None:
    """Does nothing."""
    del start, plan


@workflow.defn
class BareWorkflow:
    """Two local activities, one after the other."""

    @workflow.run
    async def run(self, start: Start) -> int:
        """Returns 1, as an episode's workflow returns its outcome."""
        within = timedelta(seconds=30)
        plan = await workflow.execute_local_activity(open_bare, start, start_to_close_timeout=within)
        await workflow.execute_local_activity(end_bare, args=[start, plan], start_to_close_timeout=within)
        return 1


@workflow.defn
class BareStep:
    """One local activity: all that an episode takes which was run elsewhere."""

    @workflow.run
    async def run(self, start: Start) -> int:
        """Returns 1."""
        within = timedelta(seconds=30)
        await workflow.execute_local_activity(open_bare, start, start_to_close_timeout=within)
        return 1
