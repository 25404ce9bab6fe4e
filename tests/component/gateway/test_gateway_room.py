"""How many tokens an engine has room for: asked once, and again after it was away; what isn't told isn't kept."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from gateway_engine import ScriptedEngine
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.gateway import bootstrap
from services.gateway.adapters.engine import HttpEngine
from services.gateway.domain.calls import ChatCall
from services.gateway.domain.messages import Message
from services.gateway.ports import EngineUnavailable, Piece, Ticket

ASK = (Message(role="user", content="hello"),)
CALL = ChatCall(messages=ASK)


class Asked(ScriptedEngine):
    """Says in turn what the test has put there, the last one for good."""

    told: tuple[int | None, ...] = (4096,)
    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def models(self, _: Request) -> Response:
        told = self.told[min(self.asked, len(self.told) - 1)]
        self.asked += 1
        return JSONResponse({"data": [{"id": "policy", "max_model_len": told}]})

    async def abort(self, request: Request) -> Response:
        await self.goes_on.wait()
        return await super().abort(request)


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    engine = Asked()
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def http() -> AsyncIterator[HttpEngine]:
    client = bootstrap.engine_client("engine-token", 0.4, 10)
    yield HttpEngine(client, "policy")
    await client.close()


async def room(http: HttpEngine, engine: Asked) -> int | None:
    return (await http.render(engine.url, CALL, ASK, True)).room_tokens


async def test_it_is_asked_once(http: HttpEngine, asked: Asked) -> None:
    assert [await room(http, asked) for _ in range(3)] == [4096] * 3
    assert asked.asked == 1


async def test_an_engine_that_says_nothing_yet_is_asked_again(http: HttpEngine, asked: Asked) -> None:
    asked.told = (None, 512)
    assert [await room(http, asked) for _ in range(3)] == [None, 512, 512]


async def test_an_engine_that_refused_a_call_is_asked_again(http: HttpEngine, asked: Asked) -> None:
    asked.told, asked.broken_derenders = (4096, 512), 1
    assert await room(http, asked) == 4096
    with pytest.raises(EngineUnavailable, match="busy"):
        await http.derender(asked.url, CALL, (1,), Piece((2,), (-0.5,)))
    assert [await room(http, asked) for _ in range(2)] == [512, 512]


async def test_an_engine_that_did_not_answer_is_asked_again(http: HttpEngine, asked: Asked) -> None:
    asked.told = (4096, 512)
    assert await room(http, asked) == 4096
    with pytest.raises(EngineUnavailable, match="TimeoutError"):
        await http.abort(Ticket("l", "w", asked.url, 0, ""), "r")
    asked.goes_on.set()
    assert [await room(http, asked) for _ in range(2)] == [512, 512]
