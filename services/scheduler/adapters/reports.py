"""Reads the trainer's report of a step from the blob store."""

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.trainer.v1.report_pb2 import StepReport
from google.protobuf.message import DecodeError

from services.kernel.blobs import Blobs
from services.kernel.errors import Permanent
from services.scheduler.domain.facts import TrainedEpisode


class BlobReports:
    """Reports on the blob store."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def episodes(self, report: BlobRef) -> tuple[TrainedEpisode, ...]:
        try:
            parsed = StepReport.FromString(await self._blobs.get(report))
        except DecodeError as error:
            raise Permanent(f"report {report.uri} can't be decoded: {error}") from error
        return tuple(
            TrainedEpisode(
                episode_id=episode.episode_id,
                trained=episode.trained,
                why_not=episode.why_not,
                mean_advantage=episode.mean_advantage,
                trained_tokens=episode.trained_tokens,
                total_reward=episode.total_reward,
                loss_weight=episode.loss_weight,
                masked_tokens=episode.masked_tokens,
            )
            for episode in parsed.episodes
        )
