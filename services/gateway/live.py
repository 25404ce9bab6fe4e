"""A call in flight: one generation, any number of clients that wait for it.

It refuses to end early for one client while another still waits.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from services.gateway.domain.calls import ChatCall, LiveMark
from services.gateway.domain.messages import Message
from services.gateway.ports import Delta, Ticket


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets of a finished call."""

    call_id: str
    message: Message
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    queue_s: float
    logprobs_json: str = ""


@dataclass(slots=True)
class LiveCall:
    """Changed by its one task; watched by clients. `ticket`: where it is being generated at this moment."""

    mark: LiveMark
    call: ChatCall
    deltas: list[Delta] = field(default_factory=list[Delta])
    answer: Answer | None = None
    error: Exception | None = None
    clients: int = 0
    # Unix time, for clients that want to know.
    created_s: int = 0
    queue_s: float = 0.0
    ticket: Ticket | None = None
    request_id: str = ""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def attach(self) -> None:
        """One more client waits."""
        self.clients += 1

    def detach(self) -> None:
        """A client went away; the last one's leaving ends the generation."""
        self.clients -= 1
        if self.clients == 0 and not self.ended.is_set():
            self.abandon()

    def abandon(self) -> None:
        """Nobody waits any more."""
        self.gone.set()

    def push(self, delta: Delta) -> None:
        """Something for streamed clients."""
        self.deltas.append(delta)
        self._wake()

    def begin(self, queue_s: float) -> None:
        """An engine was found."""
        self.queue_s += queue_s
        self.begun.set()

    def finish(self, answer: Answer) -> None:
        """Recorded: the last byte may go out."""
        self.answer = answer
        self._end()

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        self.error = error
        self._end()

    def as_mark(self) -> LiveMark:
        """How a repeat recognises it."""
        m = self.mark
        return LiveMark(m.call_id, m.idempotency_key, m.digest, m.attempt, self.gone.is_set(), m.continues)

    async def result(self) -> Answer:
        """The answer. Raises what the call failed with."""
        await self.ended.wait()
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer

    async def follow(self) -> AsyncIterator[Delta]:
        """Deltas from the first one on, until the call has ended."""
        sent = 0
        while True:
            while sent < len(self.deltas):
                yield self.deltas[sent]
                sent += 1
            if self.ended.is_set():
                return
            changed = self._changed
            await changed.wait()

    def _end(self) -> None:
        self.begun.set()
        self.ended.set()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
