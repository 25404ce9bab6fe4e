"""From ids as they come to deltas for streamed clients.

Ids that arrive while one step of derendering is under way go into the next step together. It refuses to drop any.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from services.gateway.domain.assembly import Assembly
from services.gateway.domain.messages import Message
from services.gateway.live import LiveCall
from services.gateway.ports import Delta

Ask = Callable[[Sequence[int], str], Awaitable[Delta]]


class Feeder:
    """Asks for the delta of each part, in order, and pushes what comes out to the call's clients."""

    def __init__(self, ask: Ask, live: LiveCall) -> None:
        self._ask, self._live = ask, live
        self._assembly = Assembly(f"call_{live.mark.call_id}")
        self._pending: list[int] = []
        self._step: asyncio.Task[None] | None = None

    async def add(self, token_ids: Sequence[int]) -> None:
        """Take ids; does not wait for their text."""
        self._pending.extend(token_ids)
        if self._step is not None and self._step.done():
            step, self._step = self._step, None
            await step
        if self._step is None and self._pending:
            self._step = asyncio.create_task(self._feed(self._taken(), ""))

    async def finish(self, finish_reason: str) -> None:
        """Feed what is left, and the end."""
        if self._step is not None:
            await self._step
        await self._feed(self._taken(), finish_reason)

    def stop(self) -> None:
        """Leave the step that is under way."""
        if self._step is not None:
            self._step.cancel()

    def message(self) -> Message:
        """What the clients have got."""
        return self._assembly.message()

    def _taken(self) -> list[int]:
        taken, self._pending = self._pending, []
        return taken

    async def _feed(self, token_ids: list[int], finish_reason: str) -> None:
        delta = await self._ask(token_ids, finish_reason)
        calls = self._assembly.add_tool_calls(delta.tool_calls_json) if delta.tool_calls_json else ""
        self._assembly.add_text(delta.content, delta.reasoning)
        if delta.content or delta.reasoning or calls:
            self._live.push(Delta(delta.content, delta.reasoning, calls))
