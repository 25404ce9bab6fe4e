"""The little HTTP/1.1 that the two ends of a black box's only way out speak: one request a connection.

On the standard library alone, since one end runs inside the sandbox. It refuses heads above 64 KiB and bodies above
8 MiB.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 8 * 1024 * 1024
HEAD_TIMEOUT_S = 30.0

Headers = list[tuple[str, str]]


class Malformed(Exception):
    """What came is no HTTP, or too much of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, whole. Header names are lower case."""

    method: str
    path: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        """The last value of a header; empty where there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), "")


async def read_head(reader: asyncio.StreamReader) -> tuple[str, Headers]:
    """First line and headers. Raises Malformed, EOFError when the other side is gone."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise Malformed("the head is too long") from error
    first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Malformed(f"not a header: {line[:80]!r}")
        headers.append((name.strip().lower(), value.strip()))
    return first, headers


async def read_request(reader: asyncio.StreamReader) -> Request:
    """The one request of a connection. Raises Malformed, EOFError."""
    async with asyncio.timeout(HEAD_TIMEOUT_S):
        first, headers = await read_head(reader)
        words = first.split(" ")
        if len(words) != 3:
            raise Malformed(f"not a request: {first[:80]!r}")
        request = Request(words[0], words[1], headers, b"")
        body = await read_body(reader, request)
    return Request(request.method, request.path, headers, body)


async def read_body(reader: asyncio.StreamReader, request: Request) -> bytes:
    """By content-length or in chunks."""
    if "chunked" in request.header("transfer-encoding").lower():
        return await read_chunks(reader)
    size = int(request.header("content-length") or 0)
    if not 0 <= size <= MAX_BODY_BYTES:
        raise Malformed(f"a body of {size} bytes; at most {MAX_BODY_BYTES} are allowed")
    return await reader.readexactly(size)


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    """A chunked body, put together."""
    body = bytearray()
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if size == 0:
            await reader.readline()
            return bytes(body)
        if len(body) + size > MAX_BODY_BYTES:
            raise Malformed(f"a body above {MAX_BODY_BYTES} bytes")
        body += await reader.readexactly(size)
        await reader.readline()


def head(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """A head as bytes; the connection closes after it."""
    lines = [first, *(f"{name}: {value}" for name, value in headers), "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def response(status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A whole response."""
    return head(f"HTTP/1.1 {status} -", [*headers, ("content-length", str(len(body)))]) + body


def request(method: str, path: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A whole request."""
    return head(f"{method} {path} HTTP/1.1", [*headers, ("content-length", str(len(body)))]) + body
