"""The inference engine over HTTP: render, generate on ids, abort, derender.

It owns no template and no parser, and refuses to touch ids: what was sampled is passed on as it came.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp

from services.gateway.adapters.engine_words import chat_body, delta_of, message_of, piece_of
from services.gateway.domain.calls import ChatCall
from services.gateway.domain.messages import Message
from services.gateway.ports import (
    ContextOverflow,
    Delta,
    EngineRefused,
    EngineUnavailable,
    Order,
    Piece,
    PolicyChanged,
    Rendered,
    Reply,
    Ticket,
)

POLICY_HEADER = "x-forgerl-policy"
# The engine names a request by this prefix and the id that it was given.
_ENGINE_ID_PREFIX = "generate-tokens-"
_OVERFLOW = re.compile(r"maximum (context|model) length|max_model_len|context length", re.IGNORECASE)
_DONE = b"[DONE]"
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
# A chunk with log-probabilities is one line; aiohttp bounds lines by its buffer.
READ_BUFFER_BYTES = 1 << 20


class HttpEngine:
    """`ChatEngine` for vLLM with `--enable-scale-out`."""

    def __init__(self, client: aiohttp.ClientSession, model: str) -> None:
        self._client, self._model = client, model
        self._room_tokens: dict[str, int | None] = {}

    async def render(self, engine_url: str, call: ChatCall, messages: Sequence[Message], prompt: bool) -> Rendered:
        """Ids of the messages. Raises ContextOverflow, EngineRefused, EngineUnavailable."""
        body = chat_body(self._model, call, messages)
        body["add_generation_prompt"] = prompt
        answer = await self._post(engine_url, "/v1/chat/completions/render", body)
        token_ids = tuple(answer.pop("token_ids"))
        answer.pop("token_offsets", None)
        return Rendered(token_ids, json.dumps(answer), await self._room(engine_url))

    async def generate(self, ticket: Ticket, order: Order) -> AsyncIterator[Piece]:
        """Pieces of one generation; one alone unless the order asks for a stream."""
        body = _generate_body(ticket, order)
        path, headers = "/inference/v1/generate", {POLICY_HEADER: ticket.policy_digest}
        if not order.stream:
            yield piece_of(await self._post(ticket.engine_url, path, body, headers))
            return
        url = f"{ticket.engine_url}{path}"
        with self._calling(ticket.engine_url):
            async with self._client.post(url, data=_json(body), headers=headers) as response:
                if response.status >= 300:
                    _raise(response.status, (await response.read()).decode("utf-8", "replace"))
                async for line in response.content:
                    text = line.strip().removeprefix(b"data: ")
                    if line.startswith(b"data: ") and text != _DONE:
                        yield _stream_piece(json.loads(text))

    async def abort(self, ticket: Ticket, request_id: str) -> None:
        """Ask the engine to stop; what it sampled comes by the generation's own answer."""
        body = {"request_ids": [f"{_ENGINE_ID_PREFIX}{request_id}"]}
        url = f"{ticket.engine_url}/inference/v1/abort_requests"
        with self._calling(ticket.engine_url):
            async with self._client.post(url, data=_json(body)) as response:
                await response.read()

    async def derender(self, engine_url: str, call: ChatCall, prompt_ids: Sequence[int], piece: Piece) -> Reply:
        """The message in the ids; empty ids make an empty message."""
        if not piece.token_ids:
            return Reply(Message(role="assistant", content=""))
        choice: dict[str, Any] = {
            "index": 0,
            "token_ids": list(piece.token_ids),
            "finish_reason": piece.finish_reason or "stop",
        }
        if call.logprobs is not None and piece.logprobs_json:
            choice["logprobs"] = {"content": json.loads(piece.logprobs_json)}
        body = {
            "model": self._model,
            # Only the tail of the prompt and the options matter to the parsers, not the earlier messages.
            "chat_request": chat_body(self._model, call, call.messages[-1:]),
            "generate_response": {"request_id": "r", "choices": [choice], "prompt_token_ids": list(prompt_ids)},
        }
        answer = await self._post(engine_url, "/v1/chat/completions/derender", body)
        first = answer["choices"][0]
        message = message_of(first["message"], piece.stopped_by)
        logprobs = first.get("logprobs")
        return Reply(message, json.dumps(logprobs) if logprobs and call.logprobs is not None else "")

    def reader(self, call: ChatCall, prompt_ids: Sequence[int]) -> "HttpReader":
        """A reader for a streamed call."""
        chat = chat_body(self._model, call, call.messages[-1:])
        return HttpReader(self, {"model": self._model, "chat_request": chat, "prompt_token_ids": list(prompt_ids)})

    async def derender_chunk(self, engine_url: str, body: dict[str, Any]) -> dict[str, Any]:
        """One step of a streamed derender."""
        return await self._post(engine_url, "/v1/chat/completions/derender", body)

    async def _room(self, engine_url: str) -> int | None:
        known = self._room_tokens.get(engine_url)
        if known is not None:
            return known
        with self._calling(engine_url):
            async with self._client.get(f"{engine_url}/v1/models") as response:
                answer = json.loads(await response.read())
        room_tokens = next((m.get("max_model_len") for m in answer.get("data", [])), None)
        if room_tokens is not None:
            self._room_tokens[engine_url] = room_tokens
        return room_tokens

    async def _post(
        self, engine_url: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        with self._calling(engine_url):
            async with self._client.post(f"{engine_url}{path}", data=_json(body), headers=headers) as response:
                status, raw = response.status, await response.read()
            if status >= 300:
                _raise(status, raw.decode("utf-8", "replace"))
            answer = json.loads(raw)
        if not isinstance(answer, dict):
            # The engine answers null when it believes that its client is gone.
            raise EngineUnavailable(f"engine {engine_url}{path}: answered no object")
        return answer

    @contextmanager
    def _calling(self, engine_url: str) -> Iterator[None]:
        """Tells failures of a call as EngineUnavailable; what comes back at this address may be another engine."""
        try:
            yield
        except EngineUnavailable:
            self._room_tokens.pop(engine_url, None)
            raise
        except (*_FAILURES, ValueError) as error:
            self._room_tokens.pop(engine_url, None)
            raise EngineUnavailable(f"engine {engine_url}: {type(error).__name__}") from error


class HttpReader:
    """`DeltaReader`: the engine keeps nothing, so the state goes back and forth."""

    def __init__(self, engine: HttpEngine, fixed: dict[str, Any]) -> None:
        self._engine, self._fixed = engine, fixed
        self._state: dict[str, Any] | None = None

    async def feed(self, engine_url: str, token_ids: Sequence[int], finish_reason: str) -> Delta:
        """The delta of these ids."""
        choice = {"index": 0, "token_ids": list(token_ids), "finish_reason": finish_reason or None}
        chunk = {"request_id": "r", "choices": [choice]}
        body = {**self._fixed, "stream": True, "generate_chunk": chunk, "stream_state": self._state}
        answer = await self._engine.derender_chunk(engine_url, body)
        self._state = answer["stream_state"]
        choices = answer["chunk"]["choices"]
        return delta_of(choices[0]["delta"]) if choices else Delta()


def _json(body: dict[str, Any]) -> bytes:
    # ASCII, so that lone surrogates in a client's text pass through instead of failing to encode.
    return json.dumps(body, separators=(",", ":")).encode()


def _generate_body(ticket: Ticket, order: Order) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(order.request_json)
    sampling = dict(body.get("sampling_params") or {})
    sampling["max_tokens"] = order.max_new_tokens
    sampling["logprobs"] = order.logprobs
    if sampling.get("min_tokens"):
        sampling["min_tokens"] = max(0, sampling["min_tokens"] - order.sampled_tokens)
    # Text is made afterwards, by derendering; only stop strings need it while sampling.
    sampling["detokenize"] = bool(sampling.get("stop"))
    body.update(
        request_id=order.request_id,
        token_ids=list(order.token_ids),
        sampling_params=sampling,
        cache_salt=ticket.policy_digest or None,
        stream=order.stream,
        stream_options={"include_usage": True} if order.stream else None,
    )
    return body


def _stream_piece(chunk: dict[str, Any]) -> Piece:
    if "error" in chunk:
        error = chunk["error"]
        message = error.get("message", "") if isinstance(error, dict) else str(error)
        raise EngineUnavailable(f"engine: {message or 'error in the stream'}")
    return piece_of(chunk)


def _raise(status: int, text: str) -> None:
    try:
        body = json.loads(text)
        error = body.get("error", body) if isinstance(body, dict) else body
        message = error.get("message", text) if isinstance(error, dict) else str(error)
    except ValueError:
        message = text
    line = " ".join(str(message).split())[:500]
    if status == 409:
        raise PolicyChanged(f"engine: {line}")
    if status in (401, 403, 404, 408, 429) or status >= 500:
        raise EngineUnavailable(f"engine answered {status}: {line}")
    if _OVERFLOW.search(line):
        raise ContextOverflow(line)
    raise EngineRefused(line)
