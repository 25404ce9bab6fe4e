"""What every blob store must do: a folder, and S3 (spoken to a small server in the test)."""

import asyncio
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from forgerl.common.v1.blob_pb2 import BlobRef
from s3_server import S3Server

from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput, Permanent, Transient


@pytest.fixture(params=["file", "file-power", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if request.param != "s3":
        yield Blobs.open(f"file://{tmp_path}/blobs", durability="power" if request.param == "file-power" else "process")
        return
    with S3Server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield Blobs.open("s3://bucket/some/prefix")


async def test_bytes_come_back_and_a_repeat_is_answered(blobs: Blobs) -> None:
    data = b"forge " * 5000
    ref = await blobs.put(data, "text/plain")
    assert (ref.sha256, ref.size_bytes, ref.media_type) == (hashlib.sha256(data).hexdigest(), 30_000, "text/plain")
    assert ref.uri.endswith(f"/sha256/{ref.sha256[:2]}/{ref.sha256}.zst")
    assert await blobs.put(data, "text/plain") == ref
    assert await blobs.get(ref) == data
    assert await blobs.get(await blobs.put(b"", "text/plain")) == b""


async def test_what_is_compressed_already_is_kept_as_it_is(blobs: Blobs) -> None:
    data = b"ARROW1" + bytes(range(256))
    ref = await blobs.put(data, "application/vnd.apache.arrow.file")
    assert ref.uri.endswith(ref.sha256)
    assert await blobs.get(ref) == data


async def test_missing_foreign_and_wrong_blobs_are_permanent_errors(blobs: Blobs) -> None:
    ref = await blobs.put(b"here", "text/plain")
    for bad in (
        BlobRef(uri=ref.uri.replace(ref.sha256, "0" * 64), sha256="0" * 64),
        BlobRef(uri=ref.uri, sha256="0" * 64),
        BlobRef(uri=ref.uri),
        BlobRef(uri=ref.uri.rpartition("/")[0], sha256=ref.sha256),
        BlobRef(uri=f"{ref.uri}/deeper", sha256=ref.sha256),
        BlobRef(uri="file:///etc/passwd", sha256=ref.sha256),
        BlobRef(uri=ref.uri.partition("sha256/")[0] + "../../etc/passwd", sha256=ref.sha256),
    ):
        with pytest.raises(Permanent):
            await blobs.get(bad)
    assert await blobs.exists(ref)
    assert not await blobs.exists(BlobRef(uri=ref.uri.replace(ref.sha256, "0" * 64)))


async def test_a_folder_is_kept_fetched_and_freed(blobs: Blobs, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"12345")
    (folder / "deep" / "b.txt").write_text("bb")
    (folder / "packed.zst").write_bytes(b"as it is")
    uri = await blobs.put_folder("policies/run-1/3", folder)
    fetched = await blobs.fetch_folder(uri, tmp_path / "to")
    assert ((fetched / "a.bin").read_bytes(), (fetched / "deep/b.txt").read_text()) == (b"12345", "bb")
    files = {"a.bin": hashlib.sha256(b"12345").hexdigest(), "deep/b.txt": hashlib.sha256(b"bb").hexdigest()}
    files["packed.zst"] = hashlib.sha256(b"as it is").hexdigest()
    assert (fetched / "packed.zst").read_bytes() == b"as it is"
    assert json.loads(await _manifest(blobs, uri)) == {"files": files}
    assert await blobs.put_folder("policies/run-1/3", folder) == uri
    await blobs.put_folder("policies/run-1/30", folder)
    count, size_bytes = await blobs.delete(uri)
    assert (count, size_bytes) == (4, 15 + len(await _manifest(blobs, uri + "0")))
    with pytest.raises(Permanent, match="missing"):
        await blobs.fetch_folder(uri, tmp_path / "again")
    assert await blobs.delete(uri) == (0, 0)
    assert await blobs.fetch_folder(uri + "0", tmp_path / "other")


async def test_a_single_blob_is_freed(blobs: Blobs) -> None:
    ref = await blobs.put(b"packed", "application/zstd")
    assert await blobs.delete(ref.uri) == (1, 6)
    assert not await blobs.exists(ref)


async def test_what_two_free_at_once_is_freed(blobs: Blobs, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.bin").write_bytes(b"w" * 100)
    uri = await blobs.put_folder("policies/run-2/1", folder)
    refs = [await blobs.put(f"text {number}".encode(), "application/zstd") for number in range(20)]
    await asyncio.gather(*(blobs.delete(each) for each in [uri, *(ref.uri for ref in refs)] for _ in range(6)))
    assert await blobs.delete(uri) == (0, 0)
    assert [await blobs.exists(ref) for ref in refs] == [False] * 20


async def _manifest(blobs: Blobs, uri: str) -> bytes:
    return await blobs._read(f"{blobs._key(uri)}/manifest.json")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


async def test_a_corrupt_file_is_noticed(tmp_path: Path) -> None:
    blobs = Blobs.open(f"file://{tmp_path}/blobs")
    ref = await blobs.put(b"abc" * 100, "text/plain")
    truncate(Path(ref.uri.removeprefix("file://")))
    with pytest.raises(Permanent, match="corrupt"):
        await blobs.get(ref)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "weights").write_bytes(b"1")
    uri = await blobs.put_folder("p/1", tmp_path / "made")
    (tmp_path / "blobs" / "p" / "1" / "weights").write_bytes(b"2")
    with pytest.raises(Permanent, match="corrupt"):
        await blobs.fetch_folder(uri, tmp_path / "to")


async def test_a_store_that_cannot_be_written_is_transient(tmp_path: Path) -> None:
    blobs = Blobs.open(f"file://{tmp_path}/blobs")
    shutil.rmtree(tmp_path / "blobs")
    (tmp_path / "blobs").write_text("a file where the folder was")
    with pytest.raises(Transient, match="blob store"):
        await blobs.put(b"x", "text/plain")


@pytest.mark.parametrize("url", ["", "file://relative", "ftp://x", "file:///proc/none/blobs"])
def test_a_url_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(InvalidInput, match="blob_url"):
        Blobs.open(url)
