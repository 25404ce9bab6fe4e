"""Bare Temporal: python -m loadtests.pipeline.bare HOST:PORT COUNT FORM. Workflows of empty steps, nothing else.

FORM: `plain`, two local activities in a worker as the SDK makes it; `lean`, the same in a worker that is made as the
rollout service makes its own; `step`, one local activity in such a worker. Task slots, cache, eager starts and the
number of starts under way are the rollout service's in all of them.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic, process_time
from typing import Any

import uvloop
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from loadtests.pipeline.bare_workflow import BareStep, BareWorkflow, Start, end_bare, open_bare

QUEUE = "bare"
SLOTS = 512
STARTS_AT_ONCE = 16
WARM_UP = 32


def worker_options(form: str) -> Mapping[str, Any]:
    """How workflow code is run."""
    if form == "plain":
        restrictions = SandboxRestrictions.default.with_passthrough_modules("loadtests")
        return {"workflow_runner": SandboxedWorkflowRunner(restrictions=restrictions)}
    return {"workflow_runner": UnsandboxedWorkflowRunner(), "workflow_task_executor": ThreadPoolExecutor(1)}


async def measure(address: str, count: int, form: str) -> dict[str, float]:
    """Workflows a second, from the first start to the last result, and the CPU of this process for each."""
    client = await Client.connect(address)
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[BareWorkflow, BareStep],
        activities=[open_bare, end_bare],
        max_cached_workflows=2 * SLOTS,
        max_concurrent_workflow_tasks=SLOTS,
        max_concurrent_local_activities=SLOTS,
        **worker_options(form),
    )
    gate = asyncio.Semaphore(STARTS_AT_ONCE)
    run = BareStep.run if form == "step" else BareWorkflow.run

    async def one(index: int) -> None:
        name = f"{form}-{os.getpid()}-{index:06d}"
        start = Start(name, "bare", 330.0, 600.0, name, "e@1", "00-" + "0" * 52)
        async with gate:
            handle = await client.start_workflow(
                run, start, id=name, task_queue=QUEUE, task_timeout=timedelta(seconds=20), request_eager_start=True
            )
        await handle.result()

    async with worker:
        await asyncio.gather(*(one(-index - 1) for index in range(WARM_UP)))
        began_s, spent_s = monotonic(), process_time()
        await asyncio.gather(*(one(index) for index in range(count)))
        seconds, spent_s = monotonic() - began_s, process_time() - spent_s
    return {"seconds": seconds, "cpu_ms": 1000 * spent_s / count, "warm_up": WARM_UP}


if __name__ == "__main__":
    os.environ.setdefault("TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS", "20")
    if sys.argv[3] != "plain":
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))), flush=True)
    # The SDK's threads may still be there and take the interpreter's lock while it is torn down, which aborts.
    os._exit(0)
