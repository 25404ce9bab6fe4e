"""The outer end of a black box's only way out: a Unix socket that leads to the gateway and nowhere else.

It keeps the box's account (calls, time they waited in our queues) and outlasts a gateway that is being restarted; it
refuses every path outside the LLM API.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import stamina
from yarl import URL

from services.kernel.clock import Clock
from services.rollout.adapters.model import ATTEMPT_HEADER, FAILURES, QUEUE_HEADER, error_fields
from services.rollout.inside.agent_box import ENDED, LIFELINE, SOCKET
from services.rollout.inside.wire import MAX_HEAD_BYTES, Malformed, Request, head, read_request, response

PASSED_IN = ("content-type", "retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
KEPT_BACK = (
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
    "traceparent",
    ATTEMPT_HEADER,
)
NO_ANSWER = 599


class Down(Exception):
    """The gateway can't be reached, or is starting."""


@dataclass(slots=True)
class Account:
    """What a box has used so far."""

    queue_s: float = 0.0
    lost_s: float = 0.0
    calls: int = 0
    last_status: int = 0
    last_error: str = ""
    in_flight: int = 0


@dataclass(slots=True)
class Door:
    """Serves one box. `base_url` ends in /v1; `headers` go with every call; `changed` is called when one has ended."""

    client: aiohttp.ClientSession
    clock: Clock
    base_url: str
    headers: Mapping[str, str]
    patience_s: float
    account: Account
    changed: Callable[[], None]
    ended: "asyncio.Future[dict[str, Any]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @asynccontextmanager
    async def at(self, folder: Path) -> AsyncIterator[None]:
        """Listen on `folder`/door while the context lasts."""
        server = await asyncio.start_unix_server(self._serve, sock=listening(folder), limit=MAX_HEAD_BYTES)
        try:
            yield
        finally:
            server.close()
            for writer in list(self._open):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                asked = await read_request(reader)
                await self._answer(asked, reader, writer)
        except (Malformed, ValueError) as error:
            writer.write(response(400, json.dumps({"error": {"message": str(error)}}).encode()))
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, asked: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.path == LIFELINE:
            self.account.lost_s = max(self.account.lost_s, float(asked.header("x-forgerl-lost-s") or 0.0))
            await reader.read()
        elif asked.path == ENDED:
            report = json.loads(asked.body)
            writer.write(response(204))
            await writer.drain()
            if not self.ended.done():
                self.ended.set_result(report)
        elif asked.path.startswith("/v1/"):
            await self._call(asked, reader, writer)
        else:
            writer.write(response(404, b'{"error":{"message":"only /v1/ leads anywhere"}}'))

    async def _call(self, asked: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.account.in_flight += 1
        working = asyncio.ensure_future(self._forward(asked, writer))
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((working, hung_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up.cancel()
            if not working.done():
                working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            self.account.in_flight -= 1
            self.changed()

    async def _forward(self, asked: Request, writer: asyncio.StreamWriter) -> None:
        """Pass a call on, again and again while the gateway is down: its key makes all of them one."""
        headers = [(name, value) for name, value in asked.headers if name not in KEPT_BACK]
        headers.extend(self.headers.items())
        url = self.base_url + asked.path.removeprefix("/v1")
        self.account.calls += 1
        began_s = self.clock.monotonic()
        try:
            async for attempt in stamina.retry_context(
                on=Down, attempts=None, timeout=self.patience_s, wait_initial=0.2, wait_max=5.0
            ):
                with attempt:
                    lost_s = self.clock.monotonic() - began_s
                    await self._pass(asked, url, headers, writer, lost_s)
        except Down as down:
            self.account.last_status, self.account.last_error = NO_ANSWER, ""
            self.account.queue_s += self.clock.monotonic() - began_s
            body = json.dumps({"error": {"message": str(down), "type": "server_error"}}).encode()
            writer.write(response(503, body, [("content-type", "application/json"), ("x-should-retry", "false")]))

    async def _pass(
        self, asked: Request, url: str, headers: list[tuple[str, str]], writer: asyncio.StreamWriter, lost_s: float
    ) -> None:
        # As it was asked: a path that was put in order could lead out of /v1/.
        way = self.client.request(
            asked.method, URL(url, encoded=True), headers=headers, data=asked.body or None, allow_redirects=False
        )
        try:
            async with way as answer:
                if answer.status in (502, 503, 504):
                    raise Down(f"gateway: {answer.status}")
                self.account.queue_s += lost_s + float(answer.headers.get(QUEUE_HEADER) or 0.0)
                self.account.last_status, self.account.last_error = answer.status, ""
                passed = [(name, answer.headers[name]) for name in PASSED_IN if name in answer.headers]
                if "event-stream" in answer.headers.get("content-type", ""):
                    writer.write(head(f"HTTP/1.1 {answer.status} -", passed))
                    # What was passed on can't be taken back: a stream that breaks is the client's to send again.
                    with contextlib.suppress(*FAILURES):
                        async for chunk in answer.content.iter_any():
                            writer.write(chunk)
                            await writer.drain()
                    return
                body = await answer.read()
        except FAILURES as error:
            raise Down(f"gateway: {type(error).__name__}") from error
        if answer.status >= 400:
            self.account.last_error = error_fields(body)[0]
        writer.write(response(answer.status, body, passed))
        await writer.drain()


def listening(folder: Path) -> socket.socket:
    """A socket at `folder`/door for any user; bound by the folder's descriptor, since a path may be too long."""
    (folder / SOCKET).unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
        (folder / SOCKET).chmod(0o666)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(descriptor)
    return listener
