"""Bare Temporal: python -m loadtests.pipeline.bare HOST:PORT COUNT. Workflows with two local activities, nothing else.

Worker, sandbox, task slots, eager starts and the number of starts under way are those of the rollout service.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

QUEUE = "bare"
SLOTS = 512
STARTS_AT_ONCE = 16
WARM_UP = 32


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


async def measure(address: str, count: int) -> float:
    """Workflows a second, from the first start to the last result."""
    client = await Client.connect(address)
    restrictions = SandboxRestrictions.default.with_passthrough_modules("loadtests")
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[BareWorkflow],
        activities=[open_bare, end_bare],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        max_cached_workflows=2 * SLOTS,
        max_concurrent_workflow_tasks=SLOTS,
        max_concurrent_local_activities=SLOTS,
    )
    gate = asyncio.Semaphore(STARTS_AT_ONCE)

    async def one(index: int) -> None:
        start = Start(f"bare-{index:06d}", "bare", 330.0, 600.0, f"bare-{index:06d}", "e@1", "00-" + "0" * 52)
        async with gate:
            handle = await client.start_workflow(
                BareWorkflow.run,
                start,
                id=start.episode_id,
                task_queue=QUEUE,
                task_timeout=timedelta(seconds=20),
                request_eager_start=True,
            )
        await handle.result()

    async with worker:
        await asyncio.gather(*(one(-index - 1) for index in range(WARM_UP)))
        began_s = monotonic()
        await asyncio.gather(*(one(index) for index in range(count)))
        return count / (monotonic() - began_s)


if __name__ == "__main__":
    os.environ.setdefault("TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS", "20")
    print(json.dumps({"per_s": asyncio.run(measure(sys.argv[1], int(sys.argv[2])))}))
