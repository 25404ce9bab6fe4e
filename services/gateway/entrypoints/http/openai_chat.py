"""OpenAI Chat Completions: requests into neutral calls, answers and streams back into the dialect.

It tolerates fields that it does not know, and refuses what it could only pretend to do (several choices, pictures).
"""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.gateway.domain.calls import ChatCall, Sampling
from services.gateway.domain.messages import BadMessage, canonical_json, parse_messages
from services.gateway.entrypoints.http.door import Body, CallResponse, Door, Head, Headers, whole_number
from services.gateway.entrypoints.http.openai_words import chunks, completion, failure
from services.gateway.live import LiveCall
from services.kernel.errors import InvalidInput

_FRAME = ("chat_template_kwargs", "reasoning_effort")
_CARRIED = (
    *_FRAME,
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
)
"""Fields that the engine understands; the others are the client's own business."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class ChatBody(BaseModel):
    """The part of a request that is checked here; the engine checks the rest."""

    model_config = ConfigDict(extra="allow")

    messages: list[Any]
    model: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None


class OpenAiChat:
    """The dialect's routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> list[Route]:
        """What it serves."""
        return [
            Route("/v1/chat/completions", self.complete, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.model, methods=["GET"]),
        ]

    async def models(self, request: Request) -> Response:
        """The one model; any name is served by it."""
        try:
            self._door.caller(request)
        except Exception as error:
            return failure(error)
        return JSONResponse({"object": "list", "data": [_model(self._door.model)]})

    async def model(self, request: Request) -> Response:
        """A model by any name, as calls take any."""
        try:
            self._door.caller(request)
        except Exception as error:
            return failure(error)
        return JSONResponse(_model(request.path_params["name"]))

    async def complete(self, request: Request) -> "Response | CallResponse":
        """One call."""
        try:
            episode_id = self._door.caller(request)
            body = _parse(await self._door.body(request))
            call = _call(body, request)
            live = await self._door.open(request, episode_id, call)
        except Exception as error:
            return failure(error)
        model = body.model or self._door.model
        if not body.stream:
            return CallResponse(self._door, episode_id, live, (_unary_head(model), _unary_body(model)))
        usage = bool((body.stream_options or {}).get("include_usage"))
        stream = _stream_body(model, usage, self._door.keep_alive_s)
        return CallResponse(self._door, episode_id, live, (_stream_head, stream))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "forgerl"}


def _parse(raw: bytes) -> ChatBody:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidInput("body", "something else", "a JSON object") from None
    if not isinstance(fields, dict):
        raise InvalidInput("body", type(fields).__name__, "a JSON object")
    try:
        body = ChatBody(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        given = "nothing" if first["type"] == "missing" else first.get("input")
        raise InvalidInput(str(first["loc"][0]), given, first["msg"]) from None
    if body.n not in (None, 1):
        raise InvalidInput("n", body.n, "1; make several calls instead")
    if body.stream and body.logprobs:
        raise InvalidInput("logprobs", True, "false in a stream, or a call without stream")
    return body


def _call(body: ChatBody, request: Request) -> ChatCall:
    options = {name: given for name in _CARRIED if (given := getattr(body, name, None)) is not None}
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or ())]
    frame = {"tools": tools, **{name: options[name] for name in _FRAME if name in options}}
    if not tools:
        # Engines refuse a choice among no tools, and some clients always send one.
        options.pop("tool_choice", None)
        options.pop("parallel_tool_calls", None)
    try:
        messages = parse_messages(body.messages)
    except BadMessage as error:
        raise InvalidInput(error.field, error.given, error.allowed) from None
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return ChatCall(
        messages=messages,
        sampling=Sampling(body.temperature, body.top_p, body.max_completion_tokens or body.max_tokens),
        tools_json=canonical_json(tools) if tools else "",
        options_json=canonical_json(options),
        frame_json=canonical_json(frame) if len(frame) > 1 or tools else "",
        idempotency_key=request.headers.get("idempotency-key", ""),
        retry_count=whole_number(request, "x-stainless-retry-count"),
        attempt=whole_number(request, "x-forgerl-attempt"),
        # A stop string can only be cut off when the text is whole.
        stream=bool(body.stream) and not options.get("stop"),
        logprobs=logprobs,
    )


def _tool(raw: Any, where: str) -> Mapping[str, Any]:
    """A function that templates can show: one without parameters takes none."""
    tool: dict[str, Any] = raw if isinstance(raw, dict) else {"type": type(raw).__name__}
    if tool.get("type") != "function":
        raise InvalidInput(f"{where}.type", tool.get("type"), "'function'")
    function: dict[str, Any] = tool["function"] if isinstance(tool.get("function"), dict) else {}
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{where}.function.name", name, "the function's name")
    return {**tool, "function": {**function, "parameters": function.get("parameters") or _NO_PARAMETERS}}


def _times(live: LiveCall) -> Headers:
    return [
        (b"x-forgerl-queue-s", f"{live.queue_s:.6f}".encode()),
        (b"x-forgerl-call-id", live.mark.call_id.encode()),
    ]


def _unary_head(model: str) -> Head:
    async def head(live: LiveCall) -> tuple[int, Headers]:
        await live.ended.wait()
        response = (
            failure(live.error) if live.error else JSONResponse(completion(await live.result(), model, live.created_s))
        )
        return response.status_code, [*response.raw_headers, *_times(live)]

    return head


def _unary_body(model: str) -> Body:
    async def body(live: LiveCall) -> AsyncGenerator[bytes, None]:
        response = (
            failure(live.error) if live.error else JSONResponse(completion(await live.result(), model, live.created_s))
        )
        yield bytes(response.body)

    return body


async def _stream_head(live: LiveCall) -> tuple[int, Headers]:
    # A call that fails before an engine was found still gets a status of its own.
    await live.begun.wait()
    if live.error is not None:
        response = failure(live.error)
        return response.status_code, [*response.raw_headers, *_times(live)]
    kind = (b"content-type", b"text/event-stream; charset=utf-8")
    return 200, [kind, (b"cache-control", b"no-cache"), *_times(live)]


def _stream_body(model: str, usage: bool, keep_alive_s: float) -> Body:
    async def body(live: LiveCall) -> AsyncGenerator[bytes, None]:
        if live.error is not None and not live.deltas:
            yield bytes(failure(live.error).body)
            return
        async for chunk in chunks(live, model, usage, keep_alive_s):
            yield chunk

    return body
