"""The engine's KV events over ZMQ, several in one change.

Refuses to pass over a message that is lost or can't be read: whatever was known of the cache is then void.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from services.inference.domain.kv import KvChange, StoredBlock, merge
from services.kernel.logs import get_logger

_BATCH_EVENTS = 256
_HASH_BYTES = 8


class ZmqKvEvents:
    """Subscribes to `address`, where vLLM publishes (topic, number of the message, msgpack)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._decoder = msgspec.msgpack.Decoder()

    async def changes(self) -> AsyncIterator[KvChange]:
        """See ports.KvEvents."""
        expected: int | None = None
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.subscribe(b"")
            # The engine connects: vLLM binds only on all interfaces at once.
            socket.bind(self._address)
            while True:
                messages = [await socket.recv_multipart()]
                while len(messages) < _BATCH_EVENTS and await socket.poll(0):
                    messages.append(await socket.recv_multipart())
                found: list[KvChange] = []
                for _, number, payload in messages:
                    at = int.from_bytes(number, "big")
                    if at != expected:
                        found.append(KvChange(cleared=True))
                    expected = at + 1
                    found.append(self._change(payload))
                yield merge(found)

    def _change(self, payload: bytes) -> KvChange:
        try:
            _, events, *_ = self._decoder.decode(payload)
            return merge([_one(event) for event in events])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
            get_logger().warning("kv_event.unreadable", address=self._address, error=repr(error))
            return KvChange(cleared=True)


def _one(event: dict[str, Any]) -> KvChange:
    match event["type"]:
        case "BlockStored":
            return KvChange(stored=tuple(_blocks(event)))
        case "BlockRemoved":
            return KvChange(removed=tuple(_hash(value) for value in event["block_hashes"]))
        case _:
            return KvChange(cleared=True)


def _blocks(event: dict[str, Any]) -> Sequence[StoredBlock]:
    size, ids = event["block_size"], event["token_ids"]
    parent = _hash(event["parent_block_hash"]) if event["parent_block_hash"] is not None else b""
    extras = event.get("extra_keys") or []
    tier = (event.get("medium") or "gpu").lower()
    blocks: list[StoredBlock] = []
    salt = ""
    for at, value in enumerate(event["block_hashes"]):
        # vLLM salts the first block of a prompt only; the others inherit it by their parents.
        salt = next((str(key) for key in (extras[at] if at < len(extras) else None) or []), salt)
        blocks.append(StoredBlock(_hash(value), parent, tuple(ids[at * size : (at + 1) * size]), salt, tier))
        parent = blocks[-1].engine_hash
    return blocks


def _hash(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else (value % (1 << 64)).to_bytes(_HASH_BYTES, "big")
