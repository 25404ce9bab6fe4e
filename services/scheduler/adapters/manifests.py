"""Builds a batch's manifest: ordered references to trajectories and scores, for the trainer. Refuses to choose."""

from collections.abc import Sequence
from typing import cast

from forgerl.common.v1 import blob_pb2, score_pb2, task_pb2
from forgerl.scheduler.v1 import manifest_pb2

from services.scheduler.domain.members import Item, Member


def build_manifest(run_id: str, batch: int, items: Sequence[Item]) -> manifest_pb2.BatchManifest:
    """Items in the order in which they were taken, members in the order of their submission, eligible or not."""
    return manifest_pb2.BatchManifest(
        run_id=run_id,
        batch=batch,
        items=[
            manifest_pb2.BatchItem(
                group_id=item.group_id,
                domain=item.domain,
                position=item.position or 0,
                episodes=[_episode(member) for member in item.members],
            )
            for item in items
        ],
    )


def _episode(member: Member) -> manifest_pb2.BatchEpisode:
    episode = manifest_pb2.BatchEpisode(
        episode_id=member.episode_id,
        first_policy_step=member.first_policy_step,
        eligible=not member.why_not,
        why_not=member.why_not,
        traceparent=member.submission.traceparent,
    )
    if member.sealed is not None:
        episode.trajectory.CopyFrom(blob_pb2.BlobRef.FromString(member.sealed.trajectory))
    if member.scored is not None:
        episode.score.CopyFrom(score_pb2.Score.FromString(member.scored.score))
    if member.finished is not None:
        episode.outcome = cast("task_pb2.Outcome", member.finished.outcome)
        episode.agent_wall_s = member.finished.agent_wall_s
    elif member.ended_by == "infra":
        episode.outcome = task_pb2.OUTCOME_INFRA
    else:
        episode.outcome = task_pb2.OUTCOME_CANCELLED
    return episode
