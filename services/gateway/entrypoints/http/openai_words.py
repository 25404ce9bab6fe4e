"""Answers, streams and errors in OpenAI's words.

It refuses to send the end of a stream before the turn is recorded.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse

from services.gateway.domain.messages import Message
from services.gateway.entrypoints.http.door import BodyTooLarge
from services.gateway.live import Answer, LiveCall
from services.gateway.ports import ContextOverflow, Delta, EngineRefused, EpisodeSealed, TooBusy
from services.kernel.errors import ForgeError, InvalidInput, NotFound, Transient, Unauthenticated, http_status
from services.kernel.logs import get_logger

_COMMENT = b": still at it\n\n"


def completion(answer: Answer, model: str, created_s: int) -> dict[str, Any]:
    """A whole chat.completion."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": message_fields(answer.message),
        "logprobs": json.loads(answer.logprobs_json) if answer.logprobs_json else None,
        "finish_reason": answer.finish_reason,
    }
    return {
        "id": f"chatcmpl-{answer.call_id}",
        "object": "chat.completion",
        "created": created_s,
        "model": model,
        "choices": [choice],
        "usage": usage_fields(answer),
    }


def message_fields(message: Message) -> dict[str, Any]:
    """The assistant's message."""
    fields: dict[str, Any] = {"role": "assistant", "content": message.content or None, "refusal": None}
    if not message.content and not message.tool_calls and not message.reasoning:
        fields["content"] = ""
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return fields


def usage_fields(answer: Answer) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


async def chunks(live: LiveCall, model: str, usage: bool, keep_alive_s: float) -> AsyncIterator[bytes]:
    """The stream: role, deltas as they come, then finish reason, usage and [DONE] once the turn is recorded."""
    words = _Chunks(live, model, usage)
    yield words.chunk({"role": "assistant", "content": ""})
    sent = False
    async for item in _with_comments(live, keep_alive_s):
        if item is None:
            yield _COMMENT
            continue
        sent = True
        yield words.chunk(_delta_fields(item))
    try:
        answer = await live.result()
    except Exception as error:
        yield b"data: " + bytes(failure(error).body) + b"\n\n"
        return
    if not sent:
        for fields in _whole(answer.message):
            yield words.chunk(fields)
    yield words.chunk({}, answer.finish_reason)
    if usage:
        yield words.usage(answer)
    yield b"data: [DONE]\n\n"


async def _with_comments(live: LiveCall, keep_alive_s: float) -> AsyncIterator[Delta | None]:
    """Deltas, and None after each silence of that length."""
    deltas = live.follow()
    pending = asyncio.ensure_future(anext(deltas, None))
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=keep_alive_s)
            if not done:
                yield None
                continue
            delta = pending.result()
            if delta is None:
                return
            yield delta
            pending = asyncio.ensure_future(anext(deltas, None))
    finally:
        pending.cancel()


class _Chunks:
    def __init__(self, live: LiveCall, model: str, usage: bool) -> None:
        self._fixed = {
            "id": f"chatcmpl-{live.mark.call_id}",
            "object": "chat.completion.chunk",
            "created": live.created_s,
            "model": model,
        }
        self._usage = {"usage": None} if usage else {}

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**self._fixed, "choices": [choice], **self._usage})

    def usage(self, answer: Answer) -> bytes:
        return _event({**self._fixed, "choices": [], "usage": usage_fields(answer)})


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def _delta_fields(delta: Delta) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if delta.content:
        fields["content"] = delta.content
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    if delta.tool_calls_json:
        fields["tool_calls"] = json.loads(delta.tool_calls_json)
    return fields


def _whole(message: Message) -> list[dict[str, Any]]:
    """A message that is known whole, as deltas."""
    deltas: list[dict[str, Any]] = []
    if message.reasoning:
        deltas.append({"reasoning_content": message.reasoning})
    if message.content:
        deltas.append({"content": message.content})
    for index, call in enumerate(message.tool_calls):
        function = {"name": call.name, "arguments": call.arguments}
        part = {"index": index, "id": call.call_id, "type": "function", "function": function}
        deltas.append({"tool_calls": [part]})
    return deltas


def failure(error: Exception) -> JSONResponse:
    """An error as OpenAI's SDK reads it; whether to try again is said by header."""
    status, kind, code = _classify(error)
    if not isinstance(error, ForgeError) and status == 500:
        get_logger().error("http.failed", error=repr(error))
    message = error.message if isinstance(error, ForgeError) else f"internal error ({type(error).__name__})"
    field = error.field if isinstance(error, InvalidInput) else None
    param = "messages" if isinstance(error, ContextOverflow) else field
    headers = {"x-should-retry": "true" if status in (429, 503) else "false"}
    if status in (429, 503):
        headers["retry-after"] = "1"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)


def unserved(method: str, path: str, status: int) -> JSONResponse:
    """What is answered where nothing is served: the SDKs of all dialects read an error of this form."""
    message = f"{method} {path}: not served here; allowed POST /v1/chat/completions, GET /v1/models"
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "unknown_url"}}
    return JSONResponse(body, status_code=status, headers={"x-should-retry": "false"})


def _classify(error: Exception) -> tuple[int, str, str | None]:
    match error:
        case ContextOverflow():
            return 400, "invalid_request_error", "context_length_exceeded"
        case EngineRefused() | InvalidInput():
            return 400, "invalid_request_error", None
        case Unauthenticated():
            return 401, "invalid_request_error", "invalid_api_key"
        case NotFound():
            return 401, "invalid_request_error", "invalid_api_key"
        case BodyTooLarge():
            return 413, "invalid_request_error", "request_too_large"
        case EpisodeSealed():
            return 409, "invalid_request_error", "episode_over"
        case TooBusy():
            return 429, "rate_limit_error", "too_many_calls"
        case Transient() | ConnectionAbortedError():
            return 503, "server_error", "engine_unavailable"
        case _:
            return max(500, http_status(error)), "server_error", None
