"""Turns decisions into the events of forgerl.scheduler.{admission,batch,retention}.v1.

A batch's manifest is put into the blob store before its event exists. Refuses to decide anything.
"""

from datetime import UTC, datetime

from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import scheduler_pb2
from google.protobuf.message import Message

from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause
from services.kernel.event_store import EventStore
from services.scheduler.adapters.manifests import build_manifest
from services.scheduler.domain.decisions import (
    AdmitEvaluation,
    AdmitItem,
    CloseBatch,
    Decision,
    DropItem,
    PruneEpisodes,
    Revoke,
    SetWindow,
    TakeItem,
)
from services.scheduler.domain.members import Member
from services.scheduler.domain.state import State
from services.scheduler.ports import Published

_MANIFEST_TYPE = "application/protobuf"


class EventPublisher:
    """Publisher on the blob store and the catalogue."""

    def __init__(self, blobs: Blobs, catalogue: Catalogue, store: EventStore) -> None:
        self._blobs, self._catalogue, self._store = blobs, catalogue, store

    def stream_of(self, message: Message) -> str:
        return self._catalogue.stream_of(message)

    async def events(self, run_id: str, state: State, decision: Decision, event_id: str) -> list[Published]:
        match decision:
            case AdmitItem():
                members = state.items[decision.group_id].members
                return [
                    _admitted(run_id, member, decision.deadline_at_s, decision.position)
                    for member in members
                    if not member.terminal
                ]
            case AdmitEvaluation(episode_id, deadline_at_s):
                return [_admitted(run_id, state.evaluations[episode_id], deadline_at_s, None)]
            case Revoke(episode_id, reason):
                return _revoked(run_id, state.live(episode_id), reason, event_id)
            case TakeItem() | SetWindow():
                return []
            case DropItem():
                return [Published(_dropped(run_id, state, decision), state.batch_events)]
            case PruneEpisodes(episode_ids, keep_steps):
                told = scheduler_pb2.EpisodesPruned(run_id=run_id, episode_ids=episode_ids, keep_steps=keep_steps)
                return [Published(told, state.retention_events)]
            case CloseBatch(batch):
                return [Published(await self._batch(run_id, state, batch), state.batch_events)]

    async def _batch(self, run_id: str, state: State, batch: int) -> scheduler_pb2.BatchAssembled:
        manifest = build_manifest(run_id, batch, state.filling)
        ref = await self._blobs.put(manifest.SerializeToString(deterministic=True), _MANIFEST_TYPE)
        distances = [item.distance for item in state.filling]
        return scheduler_pb2.BatchAssembled(
            run_id=run_id,
            batch=batch,
            manifest=ref,
            item_count=len(state.filling),
            episode_count=sum(len(item.members) for item in state.filling),
            out_of_order_max=max(distances, default=0),
            out_of_order_mean=sum(distances) / max(1, len(distances)),
        )

    async def remove(self, run_id: str) -> None:
        stream = self._catalogue.stream_of(scheduler_pb2.BatchAssembled(run_id=run_id))
        for event in await self._store.read(stream):
            if isinstance(event.message, scheduler_pb2.BatchAssembled):
                await self._blobs.delete(event.message.manifest.uri)


def _admitted(run_id: str, member: Member, deadline_at_s: float, position: int | None) -> Published:
    submission = member.submission
    evaluation = submission.pinned_step is not None
    message = scheduler_pb2.EpisodeAdmitted(
        episode_id=member.episode_id,
        run_id=run_id,
        group_id=submission.group_id,
        kind=task_pb2.EPISODE_KIND_EVALUATION if evaluation else task_pb2.EPISODE_KIND_TRAIN,
        domain=submission.domain,
        position=position,
    )
    message.deadline.FromDatetime(datetime.fromtimestamp(deadline_at_s, UTC))
    return Published(message, member.admission_events, _cause(member, member.submitted_event_id))


def _revoked(run_id: str, member: Member | None, reason: str, event_id: str) -> list[Published]:
    if member is None:
        return []
    message = scheduler_pb2.EpisodeRevoked(episode_id=member.episode_id, run_id=run_id, reason=reason)
    return [Published(message, member.admission_events, _cause(member, event_id or member.submitted_event_id))]


def _cause(member: Member, event_id: str) -> Cause:
    """What happens to an episode belongs to its own conversation and trace, whichever event set it off."""
    return Cause(member.submission.correlation_id, event_id, member.submission.traceparent)


def _dropped(run_id: str, state: State, decision: DropItem) -> scheduler_pb2.SampleDropped:
    item = state.item_of(decision.group_id)
    return scheduler_pb2.SampleDropped(
        run_id=run_id,
        group_id=decision.group_id,
        position=decision.position,
        reason=decision.reason,
        episode_ids=[member.episode_id for member in item.members],
    )
