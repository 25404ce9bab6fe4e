"""The sidecar's lossy signals, numbered so that a listener sees what it missed."""

from collections.abc import Awaitable, Callable
from itertools import count

from forgerl.events.v1 import inference_pb2 as pb
from google.protobuf.message import Message

from services.inference.domain.engine import Seen, State
from services.inference.domain.kv import KvChange

_STATES = {
    State.STARTING: pb.WORKER_STATE_STARTING,
    State.READY: pb.WORKER_STATE_READY,
    State.SWAPPING: pb.WORKER_STATE_SWAPPING,
    State.DRAINING: pb.WORKER_STATE_DRAINING,
}


class WorkerSignals:
    """Publishes through `send`; `incarnation` is another after every start of the sidecar."""

    def __init__(
        self, send: Callable[[Message], Awaitable[None]], worker_id: str, engine_url: str, incarnation: str
    ) -> None:
        self._send = send
        self._worker_id, self._engine_url, self._incarnation = worker_id, engine_url, incarnation
        self._reports, self._changes = count(1), count(1)

    async def report(self, state: State, seen: Seen | None) -> None:
        """See ports.Signals."""
        message = pb.WorkerReported(
            worker_id=self._worker_id,
            sequence=next(self._reports),
            incarnation=self._incarnation,
            state=_STATES[state],
            engine_url=self._engine_url,
        )
        if seen is not None:
            gate, load, shape = seen.gate, seen.load, seen.shape
            message.run_id, message.policy_step, message.policy_digest = (
                gate.run_id,
                gate.policy_step,
                gate.policy_digest,
            )
            message.running_requests, message.waiting_requests = load.running, load.waiting
            message.kv_usage = load.kv_usage
            message.block_tokens, message.max_model_tokens = shape.block_tokens, shape.max_model_tokens
            message.prompt_tokens_total = load.prompt_tokens_total
            message.cached_prompt_tokens_total = load.cached_prompt_tokens_total
        await self._send(message)

    async def blocks_changed(self, change: KvChange) -> int:
        """See ports.Signals."""
        message = pb.KvBlocksChanged(
            worker_id=self._worker_id,
            sequence=next(self._changes),
            incarnation=self._incarnation,
            removed=change.removed,
            cleared=change.cleared,
        )
        for block in change.stored:
            message.stored.add(
                engine_hash=block.engine_hash,
                parent_engine_hash=block.parent,
                token_ids=b"".join(token.to_bytes(4, "little") for token in block.token_ids),
                salt=block.salt,
                tier=block.tier,
            )
        await self._send(message)
        return int(message.sequence)
