"""The engine's cached blocks as a bounded ledger, fed by its KV events. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One block that the engine now holds. `parent` is empty for a prompt's first block."""

    engine_hash: bytes
    parent: bytes
    token_ids: tuple[int, ...]
    # The policy digest under which it was stored.
    salt: str
    tier: str


@dataclass(frozen=True, slots=True)
class KvChange:
    """What one batch of events changed. `cleared`: everything before it is void."""

    stored: tuple[StoredBlock, ...] = ()
    removed: tuple[bytes, ...] = ()
    cleared: bool = False


def merge(changes: Sequence[KvChange]) -> KvChange:
    """Several changes as one; what came before the last clearing is left out."""
    start = max((at for at, change in enumerate(changes) if change.cleared), default=0)
    stored: dict[bytes, StoredBlock] = {}
    removed: dict[bytes, None] = {}
    for change in changes[start:]:
        for block in change.stored:
            removed.pop(block.engine_hash, None)
            stored[block.engine_hash] = block
        for engine_hash in change.removed:
            stored.pop(engine_hash, None)
            removed[engine_hash] = None
    return KvChange(tuple(stored.values()), tuple(removed), any(change.cleared for change in changes))


class BlockLedger:
    """Engine hashes of the blocks held, oldest first, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[bytes, None] = OrderedDict()

    def apply(self, change: KvChange) -> None:
        """Follow a change."""
        if change.cleared:
            self._held.clear()
        for engine_hash in change.removed:
            self._held.pop(engine_hash, None)
        for block in change.stored:
            self._held[block.engine_hash] = None
        while len(self._held) > self._limit:
            self._held.popitem(last=False)

    def held(self) -> list[bytes]:
        """Engine hashes, oldest first."""
        return list(self._held)
