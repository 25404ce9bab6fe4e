"""Which blocks a worker, or the shared pool, is believed to hold. Pure; bounded, least recently used go first, and
of one chain its tail, as in the engines: what is left of it still counts from the beginning.
"""

from collections import OrderedDict
from collections.abc import Sequence

from services.router.domain.chain import TOKEN_BYTES, extend, root


class BlockIndex:
    """Block names of one holder, at most `limit`; names come from prompts routed to it and from its own events."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[bytes, None] = OrderedDict()
        # The engine names blocks its own way: events speak of parents and removals by that name.
        self._by_engine_hash: OrderedDict[bytes, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def hit_blocks(self, names: Sequence[bytes]) -> int:
        """How many blocks of a chain are held, counted from its beginning."""
        for at, name in enumerate(names):
            if name not in self._held:
                return at
        return len(names)

    def add(self, names: Sequence[bytes]) -> None:
        """These, a chain from its beginning, are held, or will be in a moment."""
        for name in reversed(names):
            self._held[name] = None
            self._held.move_to_end(name)
        while len(self._held) > self._limit:
            self._held.popitem(last=False)

    def stored(self, engine_hash: bytes, parent: bytes, token_ids: bytes, salt: str) -> None:
        """The engine stored a block. One whose parent is unknown can't be named, and is left out."""
        above = self._by_engine_hash.get(parent) if parent else root(salt)
        if above is None or len(token_ids) % TOKEN_BYTES:
            return
        name = extend(above, token_ids)
        self._by_engine_hash[engine_hash] = name
        while len(self._by_engine_hash) > self._limit:
            self._by_engine_hash.popitem(last=False)
        # One that was routed here has its place in its chain; events come head first and would turn that round.
        if name not in self._held:
            self.add([name])

    def removed(self, engine_hash: bytes) -> None:
        """The engine let a block go."""
        name = self._by_engine_hash.pop(engine_hash, None)
        if name is not None:
            self._held.pop(name, None)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._held.clear()
        self._by_engine_hash.clear()
