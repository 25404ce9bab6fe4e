"""Everything a screen shows of a run, asked for at one moment. A service that doesn't answer leaves its part empty."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.router.v1 import router_service_pb2 as router_pb
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from forgerl.trainer.v1 import policy_service_pb2 as policy_pb

from services.client import AsyncClient
from services.kernel.errors import ForgeError, NotFound

T = TypeVar("T")
_PATIENCE_S = 3.0
_SILENT, NOT_YET = "the gateway does not answer", "the run is being set up"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """None or empty: not known now."""

    run: runs_pb.RunView | None
    window: scheduler_pb.WindowState | None
    ledger: scheduler_pb.RunLedger | None
    steps: Sequence[policy_pb.StepMetrics]
    workers: Sequence[router_pb.WorkerView]
    missing: str = _SILENT
    """Why `run` is None, for the screen."""

    def series(self, name: str) -> list[float]:
        """One metric over the steps that have it."""
        return [step.metrics[name] for step in self.steps if name in step.metrics]

    def latest(self, name: str) -> float | None:
        series = self.series(name)
        return series[-1] if series else None


async def _maybe(question: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await question
    except (ForgeError, TimeoutError):
        return None


async def _run(client: AsyncClient, run_id: str) -> tuple[runs_pb.RunView | None, str]:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await client.run(run_id), ""
    except NotFound:
        return None, NOT_YET
    except (ForgeError, TimeoutError):
        return None, _SILENT


async def take(client: AsyncClient, run_id: str) -> Snapshot:
    """Never raises for a service that is away."""
    (run, missing), window, ledger, steps, workers = await asyncio.gather(
        _run(client, run_id),
        _maybe(client.window(run_id)),
        _maybe(client.ledger(run_id)),
        _maybe(client.metrics(run_id)),
        _maybe(client.workers()),
    )
    return Snapshot(run, window, ledger, steps or (), workers or (), missing)
