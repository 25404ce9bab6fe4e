"""Briefs of many episodes by one call: of those that are about to start, and of those that are asked for meanwhile.

It refuses to keep one beyond its use: who asks again asks the gateway.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.kernel.errors import ForgeError, NotFound, Transient
from services.kernel.logs import get_logger
from services.rollout.ports import Brief

MOST = 100
"""Episodes of a call."""
FORESEEN = 2_000
Ask = Callable[[Sequence[str]], Awaitable[Mapping[str, Brief | None]]]
"""What the gateway says of several; None: never submitted; one that didn't fit is left out. Raises ForgeError."""


@dataclass(slots=True, eq=False)
class _Asked:
    episode_id: str
    answer: Brief | ForgeError | None = None


@dataclass(slots=True)
class CommonBriefs:
    """Asks by `ask`, one call at a time: what is asked for while one is under way is the next one's."""

    ask: Ask
    _foreseen: dict[str, Brief] = field(default_factory=dict[str, Brief])
    _waiting: list[_Asked] = field(default_factory=list["_Asked"])
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def foresee(self, episode_ids: Sequence[str]) -> None:
        """Ask for those that will be wanted soon; where that fails, they are asked for when they are."""
        for at in range(0, len(episode_ids), MOST):
            async with self._asking:
                try:
                    found = await self.ask(episode_ids[at : at + MOST])
                except ForgeError as error:
                    get_logger().warning("briefs.not_foreseen", error=error.message)
                    return
                self._foreseen |= {one: brief for one, brief in found.items() if brief is not None}
        for one in list(self._foreseen)[:-FORESEEN]:
            del self._foreseen[one]

    async def brief(self, episode_id: str) -> Brief:
        """What to run. Raises Transient, NotFound."""
        own = _Asked(episode_id, self._foreseen.pop(episode_id, None))
        self._waiting += [] if own.answer else [own]
        try:
            while own.answer is None:
                async with self._asking:
                    # It may have been foreseen meanwhile, or be in another's answer.
                    own.answer = own.answer or self._foreseen.pop(episode_id, None)
                    if own.answer is None:
                        await self._next(self._waiting[:MOST])
        finally:
            if own in self._waiting:
                self._waiting.remove(own)
        if isinstance(own.answer, ForgeError):
            raise own.answer
        assert own.answer is not None
        return own.answer

    async def _next(self, batch: Sequence[_Asked]) -> None:
        ids = list(dict.fromkeys(one.episode_id for one in batch))
        try:
            found = await self.ask(ids)
        except ForgeError as error:
            if len(batch) > 1 and not isinstance(error, Transient):
                # Some episode of the mix is bad: each by itself, so that only that one suffers.
                for one in batch:
                    await self._next([one])
                return
            found = dict.fromkeys(ids, error)
        for one in batch:
            if one.episode_id in found:
                one.answer = found[one.episode_id] or NotFound(f"episode {one.episode_id!r} was never submitted")
        self._waiting = [one for one in self._waiting if one.answer is None]
