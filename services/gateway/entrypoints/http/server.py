"""The HTTP server of the agents' API, as a part of the process.

It refuses requests whose headers or number grow out of bounds, and stops taking new ones before it drains.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from services.gateway.entrypoints.http.openai_words import unserved
from services.kernel.errors import InvalidInput

_HEADER_BYTES = 64 * 1024
_DRAIN_S = 5
Closing = Callable[[], Awaitable[None]]


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")


def application(routes: Sequence[BaseRoute]) -> Starlette:
    """All dialects, and health."""
    root = [Route("/healthz", _healthy), Route("/", _healthy, methods=["GET", "HEAD"])]
    return Starlette(routes=[*routes, *root], exception_handlers={HTTPException: _unserved})


async def _unserved(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return unserved(request.method, request.url.path, status)


class HttpServer:
    """A part."""

    def __init__(self, app: Starlette, bind: str, max_connections: int, closing: Closing | None = None) -> None:
        """`closing` is called once nothing is served any more."""
        self._closing = closing
        host, _, port = bind.rpartition(":")
        if not port.isdecimal():
            raise InvalidInput("FORGERL_GATEWAY_HTTP_BIND", bind, "host:port")
        config = uvicorn.Config(
            app,
            host=host or "127.0.0.1",
            port=int(port),
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=max_connections,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_DRAIN_S,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            ws="none",
        )
        self._server = _Quiet(config)

    @property
    def port(self) -> int:
        """The port, once it listens."""
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    async def listening(self) -> None:
        """Wait until it listens."""
        await self._server.up.wait()

    async def run(self) -> None:
        """Serve until cancelled."""
        serving = asyncio.create_task(self._server.serve())
        try:
            await asyncio.shield(serving)
        except SystemExit:
            raise InvalidInput("FORGERL_GATEWAY_HTTP_BIND", self._server.config.port, "a free port") from None
        finally:
            self._server.should_exit = True
            await asyncio.wait({serving})
            if self._closing is not None:
                await self._closing()


class _Quiet(uvicorn.Server):
    """Leaves signals to the process, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        """Signals belong to the process's lifecycle."""
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        self.up.set()
