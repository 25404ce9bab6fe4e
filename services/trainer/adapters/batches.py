"""A batch's manifest and trajectories, read from the blob store. It refuses a batch that can't be read whole."""

import asyncio

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.scheduler.v1.manifest_pb2 import BatchEpisode, BatchManifest
from google.protobuf.message import DecodeError

from services.contract.trajectory import MalformedTrajectory, Trajectory, decode
from services.kernel.blobs import Blobs
from services.kernel.errors import Permanent
from services.trainer.domain.episodes import EpisodeInput
from services.trainer.domain.refusal import StepRefused

READS_AT_ONCE = 16


class Batches:
    """Reads batches."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def manifest(self, ref: BlobRef) -> BatchManifest:
        """The manifest. Raises StepRefused."""
        try:
            return BatchManifest.FromString(await self._blobs.get(ref))
        except (Permanent, DecodeError) as error:
            raise StepRefused(f"manifest {ref.uri}: {error}") from error

    async def groups(self, manifest: BatchManifest) -> list[list[EpisodeInput]]:
        """Every item's episodes with their trajectories, in the manifest's order. Raises StepRefused."""
        turns = asyncio.Semaphore(READS_AT_ONCE)

        async def read(episode: BatchEpisode, domain: str) -> EpisodeInput:
            async with turns:
                return _input(episode, domain, await self._trajectory(episode))

        try:
            async with asyncio.TaskGroup() as tasks:
                pending = [
                    [tasks.create_task(read(episode, item.domain)) for episode in item.episodes]
                    for item in manifest.items
                ]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [[task.result() for task in group] for group in pending]

    async def _trajectory(self, episode: BatchEpisode) -> Trajectory:
        if not episode.eligible:
            return Trajectory(episode.episode_id, "", ())
        try:
            trajectory = decode(await self._blobs.get(episode.trajectory))
        except (Permanent, MalformedTrajectory) as error:
            raise StepRefused(f"episode {episode.episode_id}: trajectory: {error}") from error
        if trajectory.episode_id != episode.episode_id:
            raise StepRefused(f"episode {episode.episode_id}: its trajectory is {trajectory.episode_id}'s")
        return trajectory


def _input(episode: BatchEpisode, domain: str, trajectory: Trajectory) -> EpisodeInput:
    score = episode.score
    return EpisodeInput(
        episode_id=episode.episode_id,
        domain=domain,
        trajectory=trajectory,
        performance=score.performance,
        process=tuple((term.turn, term.value) for term in score.process),
        solved=score.failure_class == "solved",
        wall_s=episode.agent_wall_s,
        first_policy_step=episode.first_policy_step,
        eligible=episode.eligible,
        why_not=episode.why_not,
    )
