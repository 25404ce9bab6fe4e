"""What the sidecar asks of its engine, how long it waits for it, and what it makes of answers that can't be read."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from services.inference.adapters.kv_events import ZmqKvEvents
from services.inference.adapters.vllm_http import VllmEngine
from services.inference.domain.kv import KvChange
from services.kernel.errors import Transient

CLOSED = {"open": False, "policy_digest": "", "boot_id": "b", "in_flight": 0, "aborted": 3}


def engine(answer: Callable[[httpx.Request], httpx.Response]) -> VllmEngine:
    made = VllmEngine("http://engine", "tok", timeout_s=120.0)
    made._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://engine")
    return made


@pytest.mark.parametrize(("wait_s", "borne_s"), [(0.0, 120.0), (600.0, 720.0)])
async def test_an_engine_that_drains_is_waited_for_as_long_as_it_was_given(wait_s: float, borne_s: float) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=CLOSED)

    assert await engine(answer).close(wait_s=wait_s) == 3
    assert asked[0].extensions["timeout"]["read"] == borne_s
    order = json.loads(asked[0].content)
    assert (order["drain"], order["deadline_s"]) == (("wait", 600.0) if wait_s else ("abort", 10.0))


async def test_an_answer_that_is_no_json_is_an_error_that_says_whose() -> None:
    with pytest.raises(Transient, match=r"engine: GET /forgerl/gate: no JSON: '<html>"):
        await engine(lambda _: httpx.Response(200, text="<html>a proxy</html>")).look()


@pytest.mark.parametrize(
    "events",
    [[{"type": "BlockStored"}], ["?"], [{"type": "BlockRemoved", "block_hashes": ["text"]}]],
    ids=["a field is missing", "no event", "no hash"],
)
def test_an_event_that_cannot_be_read_voids_what_was_known(events: list[Any]) -> None:
    source = ZmqKvEvents("tcp://127.0.0.1:1")
    assert source._change(msgspec.msgpack.encode([0.0, events])) == KvChange(cleared=True)
    assert source._change(b"\xc1") == KvChange(cleared=True)
    readable = msgspec.msgpack.encode([0.0, [{"type": "BlockRemoved", "block_hashes": [1]}]])
    assert source._change(readable) == KvChange(removed=((1).to_bytes(8, "big"),))
