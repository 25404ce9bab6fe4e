"""Indexes and trajectories from the stores and blobs of a stack. It refuses runs that aren't there, by name."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1.queue_pb2 import QueueAdvanced
from forgerl.trainer.v1.report_pb2 import StepReport

from services.cli.errors import CommandError, UsageError
from services.cli.pool.index import EpisodeRow, PoolIndex, fold
from services.cli.pool.lines import RecordedLine
from services.cli.pool.places import PoolPlaces
from services.cli.private_messages import know_private_messages
from services.contract.trajectory import MalformedTrajectory, Trajectory, decode
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.errors import Permanent
from services.kernel.event_store import EventStore

_QUEUES = "scheduler.queue/"
_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)
_AT_ONCE = 32


class Pool:
    """Reads one stack's pool."""

    def __init__(self, places: PoolPlaces) -> None:
        self._places = places
        self._blobs = Blobs.open(places.blob_url)
        # Episodes that were asked for, of which only the record is left.
        self.pruned: list[EpisodeRow] = []

    async def runs(self) -> list[str]:
        """Ids of all runs."""
        async with self.store("scheduler") as store:
            return [stream.removeprefix(_QUEUES) for stream in await store.streams(_QUEUES)]

    async def index(self, run_id: str, *, reports: bool = True) -> PoolIndex:
        """The index of a run, with what the trainer reported. Raises UsageError when it isn't known."""
        async with self.store("scheduler") as store:
            events = await store.read(_QUEUES + run_id)
            known = [stream.removeprefix(_QUEUES) for stream in await store.streams(_QUEUES)] if not events else []
        if not events:
            raise UsageError(f"run: given {run_id!r}; the pool holds {', '.join(known) or 'none'}")
        records = [event.message for event in events if isinstance(event.message, QueueAdvanced)]
        index = fold(run_id, records)
        for report in await self._reports(run_id) if reports and not index.removed else ():
            index.report(report)
        return index

    async def trajectories(self, rows: Sequence[EpisodeRow]) -> AsyncIterator[tuple[EpisodeRow, Trajectory]]:
        """The sealed trajectories among the rows, in their order; `pruned` then lists those that are gone.

        Raises CommandError when one can't be read.
        """
        self.pruned += [row for row in rows if row.trajectory is not None and row.pruned_at_s is not None]
        sealed = [row for row in rows if row.readable]
        for first in range(0, len(sealed), _AT_ONCE):
            some = sealed[first : first + _AT_ONCE]
            for row, trajectory in zip(some, await asyncio.gather(*map(self._trajectory, some)), strict=True):
                yield row, trajectory

    async def recorded(self, rows: Sequence[EpisodeRow]) -> AsyncIterator[tuple[EpisodeRow, RecordedLine]]:
        """The episodes whole, with task and answer, which gateway and rollout know."""
        async with self.store("gateway") as gateway, self.store("rollout") as rollout:
            async for row, trajectory in self.trajectories(rows):
                own = [event.message for event in await gateway.read(f"gateway.episode/{row.episode_id}")]
                ended = [event.message for event in await rollout.read(f"rollout.episode/{row.episode_id}")]
                submitted = next(one for one in own if isinstance(one, gateway_pb2.EpisodeSubmitted))
                end = next((one for one in ended if isinstance(one, rollout_pb2.EpisodeFinished)), None)
                if end is None:
                    continue
                answer = end.answer
                if end.HasField("answer_blob"):
                    answer = (await self._get(end.answer_blob)).decode("utf-8", "replace")
                yield (
                    row,
                    RecordedLine(
                        row.group_id, row.domain, submitted.task, end.outcome, answer, end.agent_wall_s, trajectory
                    ),
                )

    async def _trajectory(self, row: EpisodeRow) -> Trajectory:
        assert row.trajectory is not None
        try:
            return decode(await self._get(row.trajectory))
        except (Permanent, MalformedTrajectory) as error:
            raise CommandError(f"episode {row.episode_id}: {error}") from error

    def located(self, uri: str) -> str:
        """Where a blob is, also in a stack whose folder was moved or copied: the name is that of the content."""
        root, _, name = uri.rpartition("/sha256/")
        return f"{self._places.blob_url.rstrip('/')}/sha256/{name}" if root else uri

    async def _get(self, ref: BlobRef) -> bytes:
        return await self._blobs.get(BlobRef(uri=self.located(ref.uri), sha256=ref.sha256))

    async def _reports(self, run_id: str) -> list[StepReport]:
        async with self.store("trainer") as store:
            events = await store.read(f"trainer.policy/{run_id}")
        steps = [event.message for event in events if isinstance(event.message, trainer_pb2.StepCompleted)]
        return [StepReport.FromString(await self._get(step.report)) for step in steps if step.HasField("report")]

    @asynccontextmanager
    async def store(self, service: str) -> AsyncIterator[EventStore]:
        """A service's store, to be read. Raises UsageError when it isn't there."""
        know_private_messages()
        url = self._places.store(service)
        store = EventStore.open(url, Catalogue.from_modules(_MODULES), SystemClock())
        try:
            yield store
        finally:
            await store.close()
