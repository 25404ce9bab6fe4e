"""Immutable bytes by reference: a local folder or S3. Refuses to hand out bytes whose digest is wrong.

Blobs are named by their sha256 and written by rename, so a repeat is no change and a half-written one is never seen.
"""

import asyncio
import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any, cast

import obstore
import zstandard
from forgerl.common.v1.blob_pb2 import BlobRef
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from services.kernel.errors import InvalidInput, Permanent, Transient

_COMPRESSED = ("zstd", "gzip", "arrow", "zip")
_MANIFEST = "manifest.json"


class Blobs:
    """One store of blobs and folders under `url`."""

    def __init__(self, store: ObjectStore, url: str, durable: bool) -> None:
        self._store = store
        self._url = url.rstrip("/")
        self._root = Path(self._url.removeprefix("file://")) if self._url.startswith("file://") else None
        self._durable = durable and self._root is not None

    @classmethod
    def open(cls, url: str, *, durability: str = "process") -> "Blobs":
        """Open `file:///DIR` (created if missing) or `s3://BUCKET/PREFIX` (credentials by AWS_… variables)."""
        if not url.startswith(("file:///", "s3://")):
            raise InvalidInput("blob_url", url, "file:///DIR or s3://BUCKET/PREFIX")
        try:
            if url.startswith("file://"):
                Path(url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
            return cls(from_url(url), url, durability == "power")
        except (OSError, BaseError) as error:
            raise InvalidInput("blob_url", url, f"a place that can be written ({error})") from error

    async def put(self, data: bytes, media_type: str) -> BlobRef:
        """Keep bytes; a repeat is answered with an equal reference. Raises Transient (disk full, store away)."""
        digest = await asyncio.to_thread(_sha256, data)
        packed = any(word in media_type for word in _COMPRESSED)
        key = f"sha256/{digest[:2]}/{digest}" + ("" if packed else ".zst")
        await self._write(key, data if packed else await asyncio.to_thread(zstandard.compress, data), fresh=True)
        return BlobRef(uri=f"{self._url}/{key}", sha256=digest, size_bytes=len(data), media_type=media_type)

    async def get(self, ref: BlobRef) -> bytes:
        """The bytes of a reference. Raises Permanent when they are missing or corrupt."""
        return await self._read(self._key(ref.uri), ref.sha256)

    async def exists(self, ref: BlobRef) -> bool:
        """Whether the bytes are there."""
        with contextlib.suppress(FileNotFoundError):
            return bool(await obstore.head_async(self._store, self._key(ref.uri)))
        return False

    async def put_folder(self, prefix: str, folder: Path) -> str:
        """Keep a folder's files under `prefix`; returns its uri. Complete once its manifest, written last, is there."""
        digests: dict[str, str] = {}
        for path in await asyncio.to_thread(_files, folder):
            name, data = path.relative_to(folder).as_posix(), await asyncio.to_thread(path.read_bytes)
            digests[name] = await asyncio.to_thread(_sha256, data)
            await self._write(f"{prefix}/{name}", data)
        manifest = json.dumps({"files": digests}, indent=1, sort_keys=True).encode()
        await self._write(f"{prefix}/{_MANIFEST}", manifest)
        return f"{self._url}/{prefix}"

    async def fetch_folder(self, uri: str, to: Path) -> Path:
        """A local path with the folder's files, all checked: the store's own where it is local, else `to`.

        Raises Permanent when the folder is incomplete or corrupt.
        """
        key = self._key(uri)
        files = cast("dict[str, str]", json.loads(await self._read(f"{key}/{_MANIFEST}"))["files"])
        for name, digest in files.items():
            data = await self._read(f"{key}/{name}", digest)
            if self._root is None:
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                await asyncio.to_thread((to / name).write_bytes, data)
        return self._root / key if self._root is not None else to

    async def delete(self, uri: str) -> tuple[int, int]:
        """Free one blob, or everything under a folder's uri: number of objects and bytes freed (0, 0 on a repeat)."""
        key, untyped = self._key(uri), cast("Any", obstore)
        found = await untyped.list(self._store, key).collect_async()
        # Somebody else may free the same at the same time: what is gone is freed.
        with contextlib.suppress(FileNotFoundError):
            found = found or [await obstore.head_async(self._store, key)]
        # The manifest goes first: a folder half freed is a folder that isn't there.
        paths = sorted((item["path"] for item in found), key=lambda path: not path.endswith(_MANIFEST))
        for group in (paths[:1], paths[1:]):
            await asyncio.gather(*map(self._remove, group))
        return len(paths), sum(item["size"] for item in found)

    async def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, path)

    def _key(self, uri: str) -> str:
        if not uri.startswith(f"{self._url}/") or ".." in uri:
            raise Permanent(f"{uri} is not in this blob store ({self._url})")
        return uri.removeprefix(f"{self._url}/").rstrip("/")

    async def _read(self, key: str, sha256: str | None = None) -> bytes:
        try:
            # One change of threads, in which a file is read too: several cost more than the reading.
            found = self._root / key if self._root else await (await obstore.get_async(self._store, key)).bytes_async()
            return await asyncio.to_thread(_unpacked, found, key, sha256)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise Permanent(f"blob {self._url}/{key} is missing") from None
        except (OSError, BaseError) as error:
            raise Transient(f"blob store: {error}") from error

    async def _write(self, key: str, data: bytes, *, fresh: bool = False) -> None:
        try:
            await obstore.put_async(self._store, key, data, mode="create" if fresh else "overwrite")
        except AlreadyExistsError:
            return
        except (OSError, BaseError) as error:
            raise Transient(f"blob store {self._url}: {error}") from error
        if self._durable and self._root is not None:
            await asyncio.to_thread(_sync, self._root / key)


def _unpacked(found: Any, key: str, sha256: str | None) -> bytes:
    body = found.read_bytes() if isinstance(found, Path) else bytes(found)
    try:
        data = zstandard.decompress(body) if key.startswith("sha256/") and key.endswith(".zst") else body
    except zstandard.ZstdError as error:
        raise Permanent(f"blob {key} is corrupt: {error}") from error
    if sha256 is not None and _sha256(data) != sha256:
        raise Permanent(f"blob {key} is corrupt: its sha256 is not {sha256}")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)


def _sync(path: Path) -> None:
    for target in (path, path.parent, path.parent.parent):
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
