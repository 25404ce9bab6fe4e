"""Signals and policies from the bus into the fleet; policies also into private streams, to be known after a restart."""

from collections.abc import Sequence

from forgerl.events.v1 import inference_pb2
from forgerl.events.v1.trainer_pb2 import PolicyPublished
from forgerl.router.v1.records_pb2 import NewestPolicyNoted

from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.router.domain.workers import Report
from services.router.fleet import Fleet, Stored

POLICY_TOPIC = "forgerl.trainer.policy.v1"
WORKER_TOPIC = "forgerl.inference.worker.v1"
KV_TOPIC = "forgerl.inference.kv.v1"
_STREAMS = "router.policies/"
_STATES = {
    inference_pb2.WORKER_STATE_READY: "ready",
    inference_pb2.WORKER_STATE_SWAPPING: "swapping",
    inference_pb2.WORKER_STATE_DRAINING: "draining",
}


class Listener:
    """Feeds one fleet."""

    def __init__(self, store: EventStore, fleet: Fleet) -> None:
        self._store, self._fleet = store, fleet

    async def recall(self) -> None:
        """Know the policies that were known before this process started."""
        for stream in await self._store.streams(_STREAMS):
            for event in await self._store.read(stream):
                if isinstance(event.message, NewestPolicyNoted):
                    self._fleet.note_policy(event.message.run_id, event.message.step)

    async def policies(self, events: Sequence[Event]) -> Sequence[Write]:
        """Note newer policies."""
        newest: dict[str, PolicyPublished] = {}
        for event in events:
            message = event.message
            if isinstance(message, PolicyPublished):
                self._fleet.note_policy(message.run_id, message.step)
                newest[message.run_id] = max(message, newest.get(message.run_id, message), key=lambda one: one.step)
        writes: list[Write] = []
        for run_id, policy in newest.items():
            stream = f"{_STREAMS}{run_id}"
            noted = NewestPolicyNoted(run_id=run_id, step=policy.step, digest=policy.digest)
            writes.append(Write(stream, await self._store.version(stream), (noted,)))
        return writes

    async def worker(self, event: Event) -> None:
        """A worker reported."""
        message = event.message
        if isinstance(message, inference_pb2.WorkerReported):
            self._fleet.report(
                Report(
                    worker_id=message.worker_id,
                    incarnation=message.incarnation,
                    sequence=message.sequence,
                    state=_STATES.get(message.state, "starting"),
                    engine_url=message.engine_url,
                    run_id=message.run_id,
                    policy_step=message.policy_step,
                    policy_digest=message.policy_digest,
                    requests=message.running_requests + message.waiting_requests,
                    block_tokens=message.block_tokens,
                )
            )

    async def blocks(self, event: Event) -> None:
        """A worker's cache changed."""
        message = event.message
        if isinstance(message, inference_pb2.KvBlocksChanged):
            stored = [
                Stored(block.engine_hash, block.parent_engine_hash, block.token_ids, block.salt)
                for block in message.stored
            ]
            at = (message.incarnation, message.sequence)
            self._fleet.blocks(message.worker_id, at, stored, message.removed, message.cleared)
