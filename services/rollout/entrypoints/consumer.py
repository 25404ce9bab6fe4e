"""Admissions become workflows, revocations cancel them. It refuses to start an episode twice: the id is the episode's.

Nothing is written here: what Temporal accepted is durable, and a repeat is told that it's there already.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from forgerl.events.v1.scheduler_pb2 import EpisodeAdmitted, EpisodeRevoked
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from services.kernel.envelope import Event
from services.kernel.errors import Transient
from services.kernel.event_store import Write
from services.kernel.logs import get_logger
from services.kernel.telemetry import use_parent
from services.rollout.domain.episode import EpisodeStart
from services.rollout.entrypoints.worker import TASK_TIMEOUT_S
from services.rollout.entrypoints.workflow import EpisodeWorkflow

ADMISSION_TOPIC = "forgerl.scheduler.admission.v1"
STARTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class AdmissionConsumer:
    """Handles forgerl.scheduler.admission.v1. `call_timeout_s`, `patience_s`: see EpisodeStart.

    `foresee` is told which episodes are about to start.
    """

    client: Client
    task_queue: str
    call_timeout_s: float
    patience_s: float
    foresee: Callable[[Sequence[str]], Awaitable[None]]

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """Start and cancel, in order within an episode, several episodes at once. Raises Transient."""
        by_episode: dict[str, list[Event]] = {}
        for event in events:
            by_episode.setdefault(event.stream, []).append(event)
        admitted = [event.key for event in events if isinstance(event.message, EpisodeAdmitted)]
        gate = asyncio.Semaphore(STARTS_AT_ONCE)
        outcomes = await asyncio.gather(
            self.foresee(admitted), *(self._episode(own, gate) for own in by_episode.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return ()

    async def _episode(self, events: Sequence[Event], gate: asyncio.Semaphore) -> None:
        async with gate:
            for event in events:
                with use_parent(event.cause.traceparent):
                    try:
                        await self._apply(event)
                    except RPCError as error:
                        raise Transient(f"temporal: {error}") from error

    async def _apply(self, event: Event) -> None:
        if isinstance(event.message, EpisodeAdmitted):
            await self._start(event, event.message)
        elif isinstance(event.message, EpisodeRevoked):
            await self._cancel(event.message)

    async def _start(self, event: Event, admitted: EpisodeAdmitted) -> None:
        start = EpisodeStart(
            admitted.episode_id,
            admitted.run_id,
            self.call_timeout_s,
            self.patience_s,
            event.cause.correlation_id,
            event.id,
            event.cause.traceparent,
        )
        try:
            await self.client.start_workflow(
                EpisodeWorkflow.run,
                start,
                id=admitted.episode_id,
                task_queue=self.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                task_timeout=timedelta(seconds=TASK_TIMEOUT_S),
                request_eager_start=True,
            )
        except WorkflowAlreadyStartedError:
            return

    async def _cancel(self, revoked: EpisodeRevoked) -> None:
        try:
            await self.client.get_workflow_handle(revoked.episode_id).cancel()
        except RPCError as error:
            # Never started, or over: then there's nothing to call off.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        get_logger().info("episode.revoked", **facts(revoked))


def facts(revoked: EpisodeRevoked) -> Mapping[str, str]:
    """What a log line says of it."""
    return {"episode_id": revoked.episode_id, "run_id": revoked.run_id, "reason": revoked.reason}
