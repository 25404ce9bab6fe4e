"""What all dialects share at the HTTP door: who calls, how large a body may be, and who went away.

It refuses bodies beyond the bound before they are read whole, and knows no dialect's words.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from services.gateway.adapters.credentials import Credentials
from services.gateway.completions import Completions
from services.gateway.domain.calls import ChatCall
from services.gateway.live import LiveCall
from services.kernel.errors import InvalidInput, Permanent, Unauthenticated


class BodyTooLarge(Permanent):
    """More bytes than this door takes."""


@dataclass(frozen=True, slots=True)
class Door:
    """`max_body_bytes` bounds a request; `keep_alive_s`: longest silence of a stream."""

    completions: Completions
    credentials: Credentials
    model: str
    max_body_bytes: int
    keep_alive_s: float

    def caller(self, request: Request) -> str:
        """The episode whose key was shown, as bearer token or x-api-key. Raises Unauthenticated."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        if not key:
            raise Unauthenticated("api key: given none; allowed the episode's own key")
        return self.credentials.episode_of(key)

    async def body(self, request: Request) -> bytes:
        """The whole body. Raises BodyTooLarge."""
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > self.max_body_bytes:
                raise BodyTooLarge(f"body: given more than {self.max_body_bytes} bytes; allowed at most that many")
            parts.append(part)
        return b"".join(parts)

    async def open(self, request: Request, episode_id: str, call: ChatCall) -> LiveCall:
        """The call in flight that answers the request."""
        return await self.completions.open(episode_id, call, request.headers.get("traceparent", ""))


def whole_number(request: Request, name: str) -> int:
    """A header that counts; 0 when it is absent. Raises InvalidInput."""
    text = request.headers.get(name, "0")
    if not text.isdecimal() or len(text) > 9:
        raise InvalidInput(name, text, "a whole number")
    return int(text)


Headers = list[tuple[bytes, bytes]]
Head = Callable[[LiveCall], Awaitable[tuple[int, Headers]]]
Body = Callable[[LiveCall], AsyncGenerator[bytes, None]]


class CallResponse:
    """An ASGI response that is made from a live call, and notices when its client goes away.

    `head` waits for what status and headers need, `body` gives the bytes.
    """

    def __init__(self, door: Door, episode_id: str, live: LiveCall, parts: tuple[Head, Body]) -> None:
        self._door, self._episode_id, self._live = door, episode_id, live
        self._head, self._body = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        delivered = False
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
                delivered = True
        except OSError:
            delivered = False
        finally:
            for task in (sending, leaving):
                task.cancel()
            self._door.completions.leave(self._episode_id, self._live, delivered)

    async def _send(self, send: Send) -> None:
        status, headers = await self._head(self._live)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async with contextlib.aclosing(self._body(self._live)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return
