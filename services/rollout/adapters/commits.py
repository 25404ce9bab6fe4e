"""Writes of many episodes in one commit: what comes while one is under way waits, and is the next one's.

It refuses to let one episode's conflict touch another's: a commit that meets one is taken apart, write by write.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.kernel.errors import Conflict
from services.kernel.event_store import CausedWrite, EventStore

MOST = 100


@dataclass(slots=True, eq=False)
class _Waiting:
    write: CausedWrite
    done: bool = False
    conflict: Conflict | None = None


@dataclass(slots=True)
class CommonCommits:
    """Appends to `store` for everybody who asks at about the same time."""

    store: EventStore
    _waiting: list[_Waiting] = field(default_factory=list["_Waiting"])
    _committing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def append(self, write: CausedWrite) -> None:
        """Returns once it is committed. Raises Conflict as EventStore.append does, Transient.

        Cancelled in the middle, it may be committed all the same.
        """
        own = _Waiting(write)
        self._waiting.append(own)
        try:
            async with self._committing:
                while not own.done:
                    await self._next()
        finally:
            if own in self._waiting:
                self._waiting.remove(own)
        if own.conflict is not None:
            raise own.conflict

    async def _next(self) -> None:
        batch: dict[str, _Waiting] = {}
        for one in self._waiting[:MOST]:
            # A second write for a stream is for a later commit.
            batch.setdefault(one.write.stream, one)
        await self._commit(list(batch.values()))
        self._waiting = [one for one in self._waiting if not one.done]

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        try:
            await self.store.append([one.write for one in batch])
        except Conflict as conflict:
            if len(batch) == 1:
                batch[0].conflict = conflict
            else:
                for one in batch:
                    await self._commit([one])
                return
        for one in batch:
            one.done = True
