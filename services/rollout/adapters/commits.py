"""Writes of many episodes in one commit: what comes while one is under way waits, and is the next one's.

It refuses to let one episode's conflict touch another's: a commit that meets one is taken apart, write by write.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.kernel.errors import Conflict
from services.kernel.event_store import CausedWrite, EventStore

MOST = 100
"""Writes in a commit; so many don't wait for more."""


@dataclass(slots=True, eq=False)
class _Waiting:
    write: CausedWrite
    urgent: bool
    done: bool = False
    conflict: Conflict | None = None


@dataclass(slots=True)
class CommonCommits:
    """Appends to `store` for everybody who asks at about the same time."""

    store: EventStore
    _waiting: list[_Waiting] = field(default_factory=list["_Waiting"])
    _committing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _now: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, write: CausedWrite, linger_s: float = 0.0) -> None:
        """Returns once it is committed; may wait `linger_s` for company. Raises as EventStore.append does.

        Cancelled in the middle, it may be committed all the same.
        """
        own = _Waiting(write, urgent=linger_s <= 0)
        self._waiting.append(own)
        if own.urgent or len(self._waiting) >= MOST:
            self._now.set()
        try:
            async with self._committing:
                while not own.done:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._now.wait(), timeout=linger_s or None)
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
        self._now.clear()
        try:
            await self._commit(list(batch.values()))
        finally:
            self._waiting = [one for one in self._waiting if not one.done]
            if len(self._waiting) >= MOST or any(one.urgent for one in self._waiting):
                self._now.set()

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
