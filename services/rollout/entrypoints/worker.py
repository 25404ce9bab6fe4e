"""The Temporal worker, as a part of the process. It refuses to know what a workflow does.

The SDK's sandbox stands around workflow code in the tests, every one of which runs in it, and not here: it finds what
isn't deterministic, which an import rule and replayed histories do too, and took about a third of the worker's time.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.workflow import EpisodeWorkflow

DRAIN_S = 3.0
# A turn is a part of one workflow task. The SDK renews the task at 0.8 of this; on a busy machine the default's 2 s of
# slack were missed, and the episode's steps done again. A worker that was killed is missed for as long.
TASK_TIMEOUT_S = 20.0
# Read by the SDK's core, which else warns of each task over 5 s: a turn may last that long, a lost task may not.
_WARN_AFTER = "TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS"


@dataclass(frozen=True, slots=True)
class EpisodeWorker:
    """Runs at most `episodes` episodes at a time; an episode holds a task slot while it runs."""

    client: Client
    task_queue: str
    activities: EpisodeActivities
    episodes: int
    sandboxed: bool = False

    def build(self) -> Worker:
        """The SDK's worker."""
        os.environ.setdefault(_WARN_AFTER, f"{TASK_TIMEOUT_S:.0f}")
        return Worker(
            self.client,
            task_queue=self.task_queue,
            workflows=[EpisodeWorkflow],
            activities=self.activities.all(),
            # What runs in it is short and holds the interpreter's lock: more threads would only fight for that.
            workflow_task_executor=ThreadPoolExecutor(1, thread_name_prefix="workflows"),
            workflow_runner=sandbox() if self.sandboxed else UnsandboxedWorkflowRunner(),
            max_cached_workflows=max(self.episodes, 100) * 2,
            max_concurrent_workflow_tasks=self.episodes,
            max_concurrent_local_activities=self.episodes,
            max_concurrent_activities=self.episodes,
            graceful_shutdown_timeout=timedelta(seconds=DRAIN_S),
        )

    async def run(self) -> None:
        """Until cancelled."""
        await self.build().run()


def sandbox() -> SandboxedWorkflowRunner:
    """The SDK's sandbox, which shares our modules: they hold no state."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("services", "forgerl")
    return SandboxedWorkflowRunner(restrictions=restrictions)
