"""Seals an episode: trajectory written as a blob, then the turns closed and the seal announced in one transaction.

It refuses a second seal, and a turn can't slip in between: closing extends the same stream that turns extend.
"""

from collections.abc import Sequence

from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2

from services.contract import trajectory as contract
from services.gateway.adapters import records
from services.gateway.domain.sealing import figures, to_trajectory
from services.gateway.domain.tree import MessageTree
from services.gateway.folds import Batch, progress_stream
from services.gateway.recorded import sealed_trajectory
from services.gateway.sessions import episode_stream, turns_stream
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore


class Sealer:
    """Adds seals to batches."""

    def __init__(self, store: EventStore, blobs: Blobs) -> None:
        self._store, self.blobs = store, blobs

    async def seal(self, batch: Batch, episode_id: str, reason: str) -> bool:
        """Add the seal of an episode to the batch; False when it was sealed, or never submitted."""
        own = await batch.events(episode_stream(episode_id))
        submitted = next((p.message for p in own if isinstance(p.message, gateway_pb2.EpisodeSubmitted)), None)
        if submitted is None or any(isinstance(past.message, gateway_pb2.TrajectorySealed) for past in own):
            return False
        events = await self._store.read(turns_stream(episode_id))
        trajectory = await self._trajectory(submitted, events)
        counts = figures(trajectory)
        blob = await self.blobs.put(contract.encode(trajectory), contract.MEDIA_TYPE)
        batch.expect(turns_stream(episode_id), len(events))
        await batch.add_blind(turns_stream(episode_id), record_pb2.TurnsClosed(reason=reason))
        sealed = gateway_pb2.TrajectorySealed(
            episode_id=episode_id,
            run_id=submitted.run_id,
            trajectory=blob,
            node_count=counts.node_count,
            turn_count=counts.turn_count,
            branch_count=counts.branch_count,
            sampled_tokens=counts.sampled_tokens,
            tree_tokens=counts.tree_tokens,
            branch_tokens=counts.branch_tokens,
            first_policy_step=counts.first_policy_step,
            last_policy_step=counts.last_policy_step,
        )
        await batch.add(episode_stream(episode_id), sealed)
        return True

    async def _trajectory(
        self, submitted: gateway_pb2.EpisodeSubmitted, events: Sequence[Event]
    ) -> contract.Trajectory:
        if submitted.HasField("recorded"):
            progress = [event.message for event in await self._store.read(progress_stream(submitted.run_id))]
            policies = {seen.policy.digest for seen in progress if isinstance(seen, record_pb2.RunObserved)} - {""}
            return await sealed_trajectory(
                submitted.episode_id, submitted.run_id, submitted.recorded, policies, self.blobs
            )
        tree = MessageTree()
        await records.fold(tree, events, self.blobs)
        return to_trajectory(tree, submitted.episode_id, submitted.run_id)
