"""Translation between the gateway's words and the engine's JSON.

It refuses to interpret: unknown fields are left out, known ones carried over.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.gateway.domain.calls import ChatCall
from services.gateway.domain.messages import Message, parse_message, renderable, to_fields
from services.gateway.ports import Delta, Piece


def chat_body(model: str, call: ChatCall, messages: Sequence[Message]) -> dict[str, Any]:
    """A chat request of the engine."""
    body: dict[str, Any] = json.loads(call.options_json)
    body["model"] = model
    body["messages"] = [to_fields(renderable(message)) for message in messages]
    if call.tools_json:
        body["tools"] = json.loads(call.tools_json)
    sampling = call.sampling
    for name, value in (
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("max_tokens", sampling.max_tokens),
    ):
        if value is not None:
            body[name] = value
    if call.logprobs is not None:
        body["logprobs"], body["top_logprobs"] = True, call.logprobs
    return body


def piece_of(answer: dict[str, Any]) -> Piece:
    """A generate response, or one chunk of it."""
    usage = answer.get("usage") or {}
    cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    if not answer.get("choices"):
        return Piece((), (), cached_tokens=cached)
    choice = answer["choices"][0]
    entries = (choice.get("logprobs") or {}).get("content") or []
    stopped_by = choice.get("stop_reason")
    return Piece(
        token_ids=tuple(choice.get("token_ids") or ()),
        logprobs=tuple(float(entry["logprob"]) for entry in entries),
        finish_reason=choice.get("finish_reason") or "",
        stopped_by=stopped_by if isinstance(stopped_by, str) else "",
        cached_tokens=cached,
        logprobs_json=json.dumps(entries),
    )


def message_of(raw: dict[str, Any], stopped_by: str) -> Message:
    """A derendered message; text from a matched stop string on is cut off, as clients expect."""
    message = parse_message({**raw, "role": "assistant"}, "message")
    cut = message.content.rfind(stopped_by) if stopped_by else -1
    return message if cut < 0 else replace(message, content=message.content[:cut])


def delta_of(raw: dict[str, Any]) -> Delta:
    """A derendered delta."""
    calls = raw.get("tool_calls") or []
    return Delta(
        content=raw.get("content") or "",
        reasoning=raw.get("reasoning_content") or raw.get("reasoning") or "",
        tool_calls_json=json.dumps(calls) if calls else "",
    )
