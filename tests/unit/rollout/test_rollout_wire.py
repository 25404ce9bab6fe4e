"""The little HTTP between a box and its worker."""

import asyncio

import pytest

from services.rollout.inside import wire


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=wire.MAX_HEAD_BYTES)
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_request_comes_out_as_it_went_in():
    sent = wire.request("POST", "/v1/x", b"hello", [("A", "1"), ("a", "2")])
    got = await wire.read_request(reader_of(sent))
    assert (got.method, got.path, got.body, got.header("a")) == ("POST", "/v1/x", b"hello", "2")


async def test_chunks_are_put_together():
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    got = await wire.read_request(reader_of(head + b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"))
    assert got.body == b"abcde"


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 9999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused(data: bytes):
    with pytest.raises(wire.Malformed):
        await wire.read_request(reader_of(data))


async def test_a_body_that_was_cut_off_is_no_request():
    with pytest.raises(EOFError):
        await wire.read_request(reader_of(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc"))
