"""What the gateway's HTTP answers mean to an episode."""

import json

import httpx
import pytest

from services.environments.tool import PYTHON
from services.kernel.errors import Permanent, Transient
from services.rollout.adapters.model import ChatModel
from services.rollout.ports import ContextOverflow, Credential, EpisodeSealed, KeyRefused, ModelCall

CALL = ModelCall(
    Credential("http://gateway/v1", "key-1", "policy"), "ep-1/1/0", [{"role": "user", "content": "hi"}], [PYTHON], 5.0
)


def answering(
    status: int, body: object, headers: dict[str, str] | None = None
) -> tuple[ChatModel, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, json=body, headers=headers)

    return ChatModel(httpx.AsyncClient(transport=httpx.MockTransport(answer))), seen


def error(code: str) -> dict[str, object]:
    return {"error": {"message": "m", "type": "invalid_request_error", "code": code}}


async def test_a_call_carries_key_tools_and_its_idempotency_key():
    choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    model, seen = answering(200, {"choices": [choice]}, {"x-forgerl-queue-s": "0.75"})
    reply = await model.complete(CALL)
    assert (reply.message["content"], reply.finish_reason, reply.queue_s) == ("yes", "stop", 0.75)
    assert str(seen[0].url) == "http://gateway/v1/chat/completions"
    assert (seen[0].headers["authorization"], seen[0].headers["idempotency-key"]) == ("Bearer key-1", "ep-1/1/0")
    body = json.loads(seen[0].content)
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
    model, _ = answering(status, error(code))
    with pytest.raises(meaning, match=str(status)):
        await model.complete(CALL)


@pytest.mark.parametrize("body", [{}, {"choices": []}, [], "x"])
async def test_a_body_that_is_no_completion_may_be_asked_for_again(body: object):
    model, _ = answering(200, body)
    with pytest.raises(Transient, match="not a completion"):
        await model.complete(CALL)


async def test_an_unreachable_gateway_may_be_asked_again():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Transient, match="ConnectError: refused"):
        await ChatModel(httpx.AsyncClient(transport=httpx.MockTransport(refuse))).complete(CALL)
