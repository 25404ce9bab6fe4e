"""The engine's KV events, on their way to the router; keeps which blocks the engine holds now."""

import asyncio

from forgerl.inference.v1.inference_service_pb2 import ListCachedBlocksResponse

from services.inference.domain.kv import BlockLedger
from services.inference.ports import KvEvents, Signals

_BLOCKS = 100_000


class KvFeed:
    """A part. Without a source it only waits."""

    def __init__(self, source: KvEvents | None, signals: Signals, worker_id: str, incarnation: str) -> None:
        self._source, self._signals = source, signals
        self._worker_id, self._incarnation = worker_id, incarnation
        self._ledger = BlockLedger(_BLOCKS)
        self._sequence = 0

    async def run(self) -> None:
        """Pass events on until cancelled."""
        if self._source is None:
            await asyncio.Event().wait()
            return
        async for change in self._source.changes():
            self._ledger.apply(change)
            self._sequence = await self._signals.blocks_changed(change)

    def listing(self) -> ListCachedBlocksResponse:
        """What the engine holds, as of the last signal."""
        return ListCachedBlocksResponse(
            worker_id=self._worker_id,
            incarnation=self._incarnation,
            sequence=self._sequence,
            engine_hashes=self._ledger.held(),
        )
