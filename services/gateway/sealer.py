"""Seals an episode: trajectory written as a blob, then the turns closed and the seal announced in one transaction.

It refuses a second seal, and a turn can't slip in between: closing extends the same stream that turns extend.
"""

from collections.abc import Iterable, Sequence

from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2

from services.contract import trajectory as contract
from services.gateway import records
from services.gateway.domain.sealing import seal_of, to_trajectory
from services.gateway.domain.tree import MessageTree
from services.gateway.folds import Batch
from services.gateway.recorded import RecordedDesk, recorded_stream, seal_in
from services.gateway.sessions import episode_stream, turns_stream
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore


class Sealer:
    """Adds seals to batches."""

    def __init__(self, store: EventStore, blobs: Blobs) -> None:
        self._store, self._blobs = store, blobs
        self.recorded = RecordedDesk(store, blobs)

    @staticmethod
    def streams(episode_ids: Sequence[str], others: Iterable[str]) -> tuple[set[str], set[str]]:
        """What seals of these episodes need to read: streams, and versions of streams, `others` among them."""
        whole = {named(one) for one in episode_ids for named in (episode_stream, recorded_stream)}
        return whole, {*map(turns_stream, episode_ids), *others}

    async def seal(self, batch: Batch, episode_id: str, reason: str) -> bool:
        """Add the seal of an episode to the batch; False when it was sealed, or never submitted."""
        own = await batch.events(episode_stream(episode_id))
        submitted = next((p.message for p in own if isinstance(p.message, gateway_pb2.EpisodeSubmitted)), None)
        if submitted is None or any(isinstance(past.message, gateway_pb2.TrajectorySealed) for past in own):
            return False
        if submitted.HasField("recorded"):
            sealed = seal_in(await batch.events(recorded_stream(episode_id)))
        else:
            events = await self._store.read(turns_stream(episode_id))
            sealed = await self._sealed(submitted, events)
            batch.expect(turns_stream(episode_id), len(events))
        await batch.add_blind(turns_stream(episode_id), record_pb2.TurnsClosed(reason=reason))
        await batch.add(episode_stream(episode_id), sealed)
        return True

    async def _sealed(
        self, submitted: gateway_pb2.EpisodeSubmitted, events: Sequence[Event]
    ) -> gateway_pb2.TrajectorySealed:
        tree = MessageTree()
        await records.fold(tree, events, self._blobs)
        trajectory = to_trajectory(tree, submitted.episode_id, submitted.run_id)
        return seal_of(trajectory, await self._blobs.put(contract.encode(trajectory), contract.MEDIA_TYPE))
