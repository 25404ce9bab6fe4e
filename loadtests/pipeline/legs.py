"""One run through the whole stack: timed from its first submission to its last batch, and audited afterwards.

It refuses to count what the services say of themselves: lost and duplicated come from reading all event stores.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import monotonic

import grpc
from forgerl.common.v1 import run_pb2
from forgerl.gateway.v1 import episode_service_pb2
from forgerl.gateway.v1 import episode_service_pb2_grpc as episode_grpc
from forgerl.gateway.v1 import run_service_pb2 as run_api
from forgerl.gateway.v1 import run_service_pb2_grpc as run_grpc

from loadtests.pipeline.recordings import GROUP, Recording, recordings
from loadtests.pipeline.stack import TOKEN, Stack
from loadtests.pipeline.world import World
from services.cli.demo.audit import audit
from services.kernel.blobs import Blobs
from services.kernel.rpc import RpcSecurity, connect

ITEMS = 16
BATCH = ITEMS * GROUP
"""Episodes of a batch."""
STREAMS = 2
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Leg:
    """What one run showed. `steady_per_s`: without its first and last tenth. CPU in seconds, by process."""

    run_id: str
    episodes: int
    seconds: float
    per_s: float
    steady_per_s: float
    lost: int
    duplicated: int
    killed: str
    load_average: float
    cpu_s: dict[str, float]
    cpu_ms_per_episode: float


@dataclass(slots=True)
class Legs:
    """Runs one leg after another on a stack that is up."""

    stack: Stack
    world: World
    blobs: Blobs

    async def run(self, run_id: str, batches: int, *, killed: str = "", deadline_s: float = 400.0) -> Leg:
        """A run of so many batches; `killed`: the service that dies half-way and is started again."""
        made = await recordings(self.blobs, run_id, batches * BATCH)
        self.world.answers.update({one.submission.episode_id: one.answer for one in made})
        channel = connect(f"127.0.0.1:{self.stack.gateway_port}", RpcSecurity(TOKEN))
        try:
            await self._create(channel, run_id, batches)
            before, began_s = self.stack.cpu_s(), monotonic()
            async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as tasks:
                for part in range(STREAMS):
                    tasks.create_task(self._submit(channel, made[part::STREAMS]))
                if killed:
                    tasks.create_task(self._kill(killed, run_id, batches // 2))
                ended_s = await self.world.trainer.has_batches(run_id, batches)
            spent = {name: round(cpu - before.get(name, 0.0), 2) for name, cpu in self.stack.cpu_s().items()}
            load = os.getloadavg()[0]
            await self._ended(channel, run_id)
        finally:
            await channel.close()
        lost, duplicated = await self._audit(run_id, len(made))
        return Leg(
            run_id=run_id,
            episodes=len(made),
            seconds=round(ended_s - began_s, 2),
            per_s=round(len(made) / (ended_s - began_s), 1),
            steady_per_s=round(self._steady(run_id), 1),
            lost=lost,
            duplicated=duplicated,
            killed=killed,
            load_average=round(load, 1),
            cpu_s=spent,
            cpu_ms_per_episode=round(1000 * sum(spent.values()) / len(made), 2),
        )

    def _steady(self, run_id: str) -> float:
        came = self.world.trainer.batches[run_id]
        cut = max(1, len(came) // 10)
        first, last = came[cut - 1], came[-cut] if len(came) > 2 * cut else came[-1]
        inside = sum(episodes for at_s, episodes in came if first[0] < at_s <= last[0])
        return inside / (last[0] - first[0]) if last[0] > first[0] else 0.0

    async def _create(self, channel: grpc.aio.Channel, run_id: str, batches: int) -> None:
        scheduling = run_pb2.SchedulingSpec(
            group_size=GROUP,
            items_per_batch=ITEMS,
            queue_items=8 * ITEMS,
            in_flight_items=8 * ITEMS,
            lookahead_steps=8,
            deadline_s=900.0,
        )
        domains = [run_pb2.DomainSpec(name="tool")]
        spec = run_pb2.RunSpec(model=run_pb2.ModelSpec(path="/m"), domains=domains, scheduling=scheduling)
        spec.end.steps = batches
        runs = run_grpc.RunServiceStub(channel)
        await runs.CreateRun(run_api.CreateRunRequest(run_id=run_id, spec=spec), wait_for_ready=True)

    async def _submit(self, channel: grpc.aio.Channel, made: Sequence[Recording]) -> None:
        """One stream; where it is cut, what was not answered is sent again."""
        answered = 0

        async def rest() -> AsyncIterator[episode_service_pb2.Submission]:
            for one in made[answered:]:
                yield one.submission

        while answered < len(made):
            call = episode_grpc.EpisodeServiceStub(channel).SubmitEpisodes(rest(), wait_for_ready=True)
            try:
                async for _ in call:
                    answered += 1
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _kill(self, name: str, run_id: str, after_batches: int) -> None:
        await self.world.trainer.has_batches(run_id, after_batches)
        program = self.stack.programs[name]
        program.kill()
        program.start()

    async def _ended(self, channel: grpc.aio.Channel, run_id: str) -> None:
        async with asyncio.timeout(60.0):
            async for view in run_grpc.RunServiceStub(channel).WatchRun(run_api.WatchRunRequest(run_id=run_id)):
                if view.state != run_api.RUN_STATE_RUNNING:
                    return

    async def _audit(self, run_id: str, expected: int) -> tuple[int, int]:
        found = await audit(self.stack.folder, run_id)
        missing = max(0, expected - found.submitted) + found.unused
        return len(found.lost) + missing, len(found.duplicated)
