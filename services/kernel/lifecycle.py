"""A process: its parts run together, and it ends as a whole. Refuses to live on when a part has ended unasked."""

import asyncio
import gc
import inspect
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import uvloop

from services.kernel.errors import ForgeError, InvalidInput
from services.kernel.logs import configure, get_logger
from services.kernel.settings import ServiceSettings, load_settings
from services.kernel.telemetry import start_tracing

_DRAIN_S = 10.0
S = TypeVar("S", bound=ServiceSettings)


class Part(Protocol):
    """Something that runs until it is cancelled. With an `async def ready`, the service awaits that too."""

    async def run(self) -> None:
        """Run; clean up when cancelled."""
        ...


async def run_service(parts: Sequence[Part], *, ready: Callable[[], Awaitable[None]] | None = None) -> None:
    """Run parts until SIGTERM or SIGINT, then stop them in reverse order. Raises what a part failed with."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    tasks = [asyncio.create_task(part.run(), name=type(part).__name__) for part in parts]
    stop = asyncio.create_task(asked.wait())
    waits = [wait for part in parts if inspect.iscoroutinefunction(wait := getattr(part, "ready", None))]
    waiting = asyncio.create_task(_announce([*waits, ready] if ready else waits))
    try:
        done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (task for task in tasks if task in done and not asked.is_set()):
            failed = isinstance(error := task.exception(), InvalidInput)
            raise (error if failed else ForgeError(f"part {task.get_name()} ended unasked")) from error
    finally:
        for task in (waiting, stop, *reversed(tasks)):
            task.cancel()
            await asyncio.wait([task], timeout=_DRAIN_S)


async def _announce(waits: Sequence[Callable[[], Awaitable[None]]]) -> None:
    for wait in waits:
        await wait()
    get_logger().info("service.ready")


Build = Callable[[S], "Sequence[Part] | Awaitable[Sequence[Part]]"]


def run(cls: type[S], build: Build[S], *, workflows: bool = False) -> None:
    """Main function of a service: settings, logs, traces, parts. Ends the process: 0 asked, 1 failed, 2 bad settings.

    `workflows`: it runs Temporal workflows, so that its traces must bear a replay.
    """
    try:
        settings = load_settings(cls)
    except InvalidInput as error:
        sys.stderr.write(f"{cls.service()}: {error.message}\n")
        sys.exit(2)
    configure(cls.service(), settings.log_level, settings.log_json)
    get_logger().info("service.starting", settings=settings.describe())
    # Most of what a service does is to be woken up; asyncio's own loop takes a fifth of its time for that.
    sys.exit(uvloop.run(_run(settings, build, workflows)))


async def _run(settings: S, build: Build[S], workflows: bool) -> int:
    traces = start_tracing(settings.service(), settings, workflows=workflows)
    try:
        parts = await built if inspect.isawaitable(built := build(settings)) else built
        # What is there by now stays to the end: the collector need not look through it again. Of what comes and goes
        # nearly all is freed by its count; messages and spans a batch are thousands.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)
        await run_service(parts)
    except ForgeError as error:
        get_logger().error("service.failed", error=error.message, cause=repr(error.__cause__))
        return 2 if isinstance(error, InvalidInput) else 1
    finally:
        traces.shutdown()
    get_logger().info("service.stopped")
    return 0


class HealthPage:
    """Answers GET /healthz for services without gRPC; a part."""

    def __init__(self, bind: str) -> None:
        host, _, port = bind.rpartition(":")
        if not port.isdecimal():
            raise InvalidInput("health_bind", bind, "host:port")
        self._bind, self._host, self._port = bind, host or "127.0.0.1", int(port)
        self._listening = asyncio.Event()

    async def ready(self) -> None:
        """Wait until it listens."""
        await self._listening.wait()

    async def run(self) -> None:
        try:
            server = await asyncio.start_server(self._answer, self._host, self._port)
        except OSError as error:
            raise InvalidInput("health_bind", self._bind, f"an address that is free ({error})") from error
        self._listening.set()
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), timeout=5.0)
            status = "200 OK" if line.startswith(b"GET /healthz ") else "404 Not Found"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()
        except (TimeoutError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()
