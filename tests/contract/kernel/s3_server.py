"""As much of S3 as the blob store speaks, over plain HTTP, in memory: PUT, GET, HEAD, bulk delete, LIST."""

import hashlib
import re
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class S3Server:
    """`with S3Server() as server`: one bucket, any credentials."""

    def __enter__(self) -> "S3Server":
        self.objects: dict[str, bytes] = {}
        objects = self.objects

        class Handler(_Handler):
            kept = objects

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        return {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", **keys}


class _Handler(BaseHTTPRequestHandler):
    kept: dict[str, bytes]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").removeprefix("/")

    def _answer(self, status: int, body: bytes = b"", size: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body) if size is None else size))
        self.send_header("etag", f'"{hashlib.md5(self.kept.get(self._key(), b"")).hexdigest()}"')
        self.send_header("last-modified", formatdate(usegmt=True))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("if-none-match") == "*" and self._key() in self.kept:
            return self._answer(412)
        self.kept[self._key()] = data
        return self._answer(200)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self._answer(200, self._listing(query.get("prefix", [""])[0]))
        data = self.kept.get(self._key())
        return self._answer(404) if data is None else self._answer(200, data)

    def do_HEAD(self) -> None:
        data = self.kept.get(self._key())
        self._answer(404) if data is None else self._answer(200, size=len(data))

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", asked)]
        for key in keys:
            self.kept.pop(key, None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _listing(self, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>x</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.kept.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
