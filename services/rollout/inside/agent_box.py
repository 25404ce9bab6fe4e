"""The first process of a black box: runs the program, is its only way out, and reports how it ended.

Runs inside the sandbox, on the standard library alone. The program speaks HTTP to a port on its own loopback; what it
says is passed through a Unix socket to the worker outside. When the worker dies, calls wait for the next one; when
none comes for `orphan_s`, the box ends itself.
"""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from services.rollout.inside.confinement import Limits, become, owns_namespace
from services.rollout.inside.keys import CallKeys
from services.rollout.inside.wire import MAX_HEAD_BYTES, Malformed, Request, head, read_head, read_request, request
from services.rollout.inside.wire import response as whole_response

SOCKET = "door"
RETRY_S = 0.1
FILE_BYTES = 256 * 1024 * 1024
MAX_STDOUT_BYTES = 256 * 1024
MAX_STDERR_BYTES = 8 * 1024
LIFELINE, ENDED = "/forgerl/lifeline", "/forgerl/ended"


class Orphaned(Exception):
    """No worker came for this box."""


@dataclass(slots=True)
class WayOut:
    """Connections to the worker outside."""

    socket: str
    orphan_s: float
    lost_s: float = 0.0
    keys: CallKeys = field(default_factory=CallKeys)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the worker, this one or the next. Raises Orphaned."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < self.orphan_s:
            with contextlib.suppress(OSError):
                return await asyncio.open_unix_connection(self.socket, limit=MAX_HEAD_BYTES)
            await asyncio.sleep(RETRY_S)
        raise Orphaned

    async def lifeline(self) -> None:
        """Hold a connection as long as there's a worker, and add up the time without one. Raises Orphaned."""
        while True:
            began_s = time.monotonic()
            reader, writer = await self.connect()
            self.lost_s += time.monotonic() - began_s
            with contextlib.suppress(OSError):
                writer.write(request("GET", LIFELINE, headers=[("x-forgerl-lost-s", f"{self.lost_s:.3f}")]))
                await writer.drain()
                await reader.read()
            writer.close()
            await asyncio.sleep(RETRY_S)

    async def tell(self, path: str, body: bytes) -> None:
        """Send until it is acknowledged. Raises Orphaned."""
        while True:
            reader, writer = await self.connect()
            with contextlib.suppress(OSError, EOFError, Malformed):
                writer.write(request("POST", path, body))
                await writer.drain()
                await read_head(reader)
                writer.close()
                return
            writer.close()
            await asyncio.sleep(RETRY_S)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One call of the program: pass it out, pass the answer in."""
        with contextlib.suppress(OSError, EOFError, Orphaned, TimeoutError):
            try:
                asked = await read_request(reader)
                await gone_or_done(reader, self.forward(asked, writer))
            except (Malformed, ValueError) as error:
                writer.write(whole_response(400, json.dumps({"error": {"message": str(error)}}).encode()))
                await writer.drain()
        writer.close()

    async def forward(self, asked: Request, writer: asyncio.StreamWriter) -> None:
        """Send under one key until an answer comes whole; of a stream, until its first byte went in."""
        dropped = ("connection", "content-length", "transfer-encoding", "idempotency-key")
        headers = [(name, value) for name, value in asked.headers if name not in dropped]
        headers.append(("idempotency-key", self.keys.key_of(asked)))
        sent = request(asked.method, asked.path, asked.body, headers)
        while True:
            out_reader, out_writer = await self.connect()
            try:
                out_writer.write(sent)
                await out_writer.drain()
                first, answer_headers = await read_head(out_reader)
                streamed = any(n == "content-type" and "event-stream" in v for n, v in answer_headers)
                if streamed:
                    await pass_stream(first, answer_headers, out_reader, writer)
                    return
                size = int(dict(answer_headers).get("content-length", "0"))
                body = await out_reader.readexactly(size)
            except (OSError, EOFError):
                await asyncio.sleep(RETRY_S)
                continue
            finally:
                out_writer.close()
            writer.write(head(first, [pair for pair in answer_headers if pair[0] != "connection"]) + body)
            await writer.drain()
            return


async def pass_stream(
    first: str, headers: list[tuple[str, str]], source: asyncio.StreamReader, sink: asyncio.StreamWriter
) -> None:
    """An event stream, byte by byte as it comes."""
    sink.write(head(first, [pair for pair in headers if pair[0] != "connection"]))
    while chunk := await source.read(65536):
        sink.write(chunk)
        await sink.drain()


async def gone_or_done(reader: asyncio.StreamReader, work: Coroutine[None, None, None]) -> None:
    """Do the work, unless the client hangs up first."""
    working, hung_up = asyncio.ensure_future(work), asyncio.ensure_future(reader.read(1))
    await asyncio.wait((working, hung_up), return_when=asyncio.FIRST_COMPLETED)
    hung_up.cancel()
    if not working.done():
        working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


def tail(output: BinaryIO, size: int) -> str:
    """The end of an output, at most `size` bytes."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    return output.read(size).decode("utf-8", "replace")


async def run_program(command: Sequence[str], environment: dict[str, str], limits: Limits) -> dict[str, object]:
    """Run it to its end. Its children end with the sandbox."""
    # Files, not pipes: a child that it leaves behind would hold a pipe open.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            cwd="/tmp",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=limits.apply,
        )
        exit_code = await process.wait()
        said, complained = tail(stdout, MAX_STDOUT_BYTES), tail(stderr, MAX_STDERR_BYTES)
    return {"exit_code": exit_code, "stdout": said, "stderr": complained}


async def box(folder: Path, orphan_s: float, limits: Limits, config: dict[str, object]) -> None:
    """Everything inside: the way out, the program, the report."""
    out = WayOut(SOCKET, orphan_s)
    server = await asyncio.start_server(out.serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
    port = server.sockets[0].getsockname()[1]
    environment = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": str(config["api_key"]),
        # The name under which engines serve; programs that insist on one need it.
        "OPENAI_MODEL": "policy",
        "FORGERL_TASK_FILE": str(folder / "task.json"),
        "HOME": "/tmp",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    command = config["command"]
    if not isinstance(command, list):
        raise TypeError("command: a list is wanted")
    lifeline = asyncio.create_task(out.lifeline())
    running = asyncio.create_task(run_program([str(word) for word in command], environment, limits))
    await asyncio.wait((lifeline, running), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await out.tell(ENDED, json.dumps(running.result()).encode())


def main(uid: int, folder: str, orphan_s: float, limits: tuple[int, int, int]) -> None:
    """Read what to run, give up every privilege, run it, end with it. `limits`: bytes, CPU seconds, processes."""
    config = json.loads((Path(folder) / "box.json").read_text())
    # The socket is reached by its bare name: a whole path may be longer than a socket's address can be.
    os.chdir(folder)
    become(uid)
    memory_bytes, cpu_s, processes = limits
    with contextlib.suppress(Orphaned):
        asyncio.run(box(Path(folder), orphan_s, Limits(memory_bytes, cpu_s, processes, FILE_BYTES), config))
    end_everything()


def end_everything() -> None:
    """Kill all that is left in here, this process last: the sandbox stands while anything runs in it."""
    if owns_namespace():
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.killpg(0, signal.SIGKILL)
