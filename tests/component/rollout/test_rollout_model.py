"""What the gateway's HTTP answers mean to an episode."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from aiohttp import web

from services.environments.tool import PYTHON
from services.kernel.clock import SystemClock
from services.kernel.errors import Permanent, Transient
from services.rollout.adapters.door import Account, Door
from services.rollout.adapters.model import ChatModel, Connections, http_client
from services.rollout.inside.agent_box import SOCKET
from services.rollout.ports import ContextOverflow, Credential, EpisodeSealed, KeyRefused, ModelCall, Reply

CALL = ModelCall(
    Credential("http://gateway/v1", "key-1", "policy"), "ep-1/1/0", [{"role": "user", "content": "hi"}], [PYTHON], 5.0
)


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    content: bytes


@asynccontextmanager
async def gateway(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[ModelCall]:
    """A gateway with one answer; the call that reaches it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, shutdown_timeout=0.1)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield replace(CALL, credential=replace(CALL.credential, base_url=f"http://{host}:{port}/v1"))
    await runner.cleanup()


async def ask(status: int, body: object, headers: dict[str, str] | None = None) -> tuple[Reply, Seen]:
    """One call of a gateway that gives this answer."""
    seen: list[Seen] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(Seen(request.path, dict(request.headers), await request.read()))
        return web.json_response(body, status=status, headers=headers)

    async with gateway(answer) as call, http_client(2) as client:
        return await ChatModel(client).complete(call), seen[0]


def error(code: str) -> dict[str, object]:
    return {"error": {"message": "m", "type": "invalid_request_error", "code": code}}


def test_the_episodes_key_is_not_in_what_an_error_or_a_log_line_shows():
    assert CALL.credential.api_key == "key-1"
    assert "key-1" not in f"{CALL!r} {CALL.credential!r}"


async def test_a_call_carries_key_tools_and_its_idempotency_key():
    choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    reply, seen = await ask(200, {"choices": [choice]}, {"x-forgerl-queue-s": "0.75"})
    assert (reply.message["content"], reply.finish_reason, reply.queue_s) == ("yes", "stop", 0.75)
    assert seen.path == "/v1/chat/completions"
    sent = {name.lower(): value for name, value in seen.headers.items()}
    assert (sent["authorization"], sent["idempotency-key"]) == ("Bearer key-1", "ep-1/1/0")
    assert sent["content-type"] == "application/json" and "traceparent" not in sent
    body = json.loads(seen.content)
    assert body["model"] == "policy" and body["tools"][0]["function"]["name"] == "python"
    # The run's sampling is the gateway's business: the loop asks for none of its own.
    assert set(body) == {"model", "messages", "tools"}


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (400, "context_length_exceeded", ContextOverflow),
        (401, "invalid_api_key", KeyRefused),
        (409, "episode_over", EpisodeSealed),
        (429, "too_many_calls", Transient),
        (500, "", Transient),
        (503, "engine_unavailable", Transient),
        (400, "bad", Permanent),
        (422, "", Permanent),
    ],
)
async def test_refusals(status: int, code: str, meaning: type[Exception]):
    with pytest.raises(meaning, match=str(status)):
        await ask(status, error(code))


@pytest.mark.parametrize("body", [{}, {"choices": []}, [], "x"])
async def test_a_body_that_is_no_completion_may_be_asked_for_again(body: object):
    with pytest.raises(Transient, match="not a completion"):
        await ask(200, body)


async def test_an_unreachable_gateway_may_be_asked_again():
    nobody = replace(CALL, credential=replace(CALL.credential, base_url="http://127.0.0.1:1/v1"))
    async with http_client(2) as client:
        with pytest.raises(Transient, match=r"gateway: ClientConnectorError: .*127\.0\.0\.1:1"):
            await ChatModel(client).complete(nobody)


async def test_a_redirect_is_not_followed():
    with pytest.raises(Permanent, match="302"):
        await ask(302, {}, {"location": "http://127.0.0.1:1/elsewhere"})


async def test_an_answer_that_does_not_come_may_be_asked_for_again():
    never = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async with gateway(silent) as call, http_client(2) as client:
        with pytest.raises(Transient, match="Timeout"):
            await ChatModel(client).complete(replace(call, timeout_s=0.2))


async def test_an_answer_that_breaks_off_may_be_asked_for_again():
    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-length": "1000"})
        await answer.prepare(request)
        await answer.write(b'{"choices": [')
        assert request.transport
        request.transport.abort()
        return answer

    async with gateway(half) as call, http_client(2) as client:
        with pytest.raises(Transient, match="gateway: Client"):
            await ChatModel(client).complete(call)


async def test_a_call_that_is_cancelled_hangs_up():
    came, left = asyncio.Event(), asyncio.Event()

    async def waiting(request: web.Request) -> web.Response:
        came.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return web.Response()

    async with gateway(waiting) as call, http_client(2) as client:
        calling = asyncio.ensure_future(ChatModel(client).complete(call))
        await came.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert not client.connector or not client.connector._acquired


async def test_the_part_closes_the_client():
    client = http_client(2)
    running = asyncio.ensure_future(Connections(client).run())
    await asyncio.wait([running], timeout=0.01)
    running.cancel()
    await asyncio.wait([running])
    assert client.closed


async def test_a_box_gets_no_further_than_the_api_by_a_path_with_dots(tmp_path):
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(status=404)

    async with gateway(answer) as call, http_client(2) as client:
        base_url = call.credential.base_url
        door = Door(client, SystemClock(), base_url, {}, 5.0, Account(), lambda: None)
        async with door.at(tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
            writer.write(b"GET /v1/../admin%2Fkeys?a=%20b HTTP/1.1\r\nhost: gateway\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 404")
            writer.close()
    # In order, it would be /admin: nobody puts it in order on the way.
    assert seen == ["/v1/../admin%2Fkeys?a=%20b"]
