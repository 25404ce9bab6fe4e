"""A scripted engine: real HTTP, a tiny chat template and tokenizer, and answers that the test lays down.

Ids: one for each character (its code point + 100), specials below 100, and merges ("th" -> 5000) that only rendering
makes, so that sampled text re-renders to other ids than were sampled.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

START, END = 1, 2
NAMES = {START: "<|im_start|>", END: "<|im_end|>"}
MERGES = {"th": 5000, "ab": 5001}
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def raw_ids(text: str) -> list[int]:
    """One id a character."""
    return [ord(char) + 100 for char in text]


def merged_ids(text: str) -> list[int]:
    """The ids that rendering makes: merges where they fit."""
    ids: list[int] = []
    at = 0
    while at < len(text):
        pair = text[at : at + 2]
        ids.append(MERGES[pair] if pair in MERGES else ord(text[at]) + 100)
        at += 2 if pair in MERGES else 1
    return ids


def text_of(ids: list[int], specials: bool = False) -> str:
    """Inverse of both; specials left out, or shown."""
    back = {token: text for text, token in MERGES.items()} | (NAMES if specials else {})
    return "".join(back.get(token) or (chr(token - 100) if token >= 100 else "") for token in ids)


@dataclass
class Script:
    """One generation. `gate`: waits before the id with that index; `cut`: the connection breaks after so many ids."""

    ids: list[int]
    finish: str = "stop"
    logprobs: list[float] | None = None
    status: int = 200
    gate_at: int = -1
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    cut: int = -1
    stop_reason: str | None = None
    abort_after: int = -1


def says(text: str, **more: Any) -> Script:
    """A turn that the engine ends by itself."""
    return Script([*raw_ids(text), END], **more)


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.up.set()


class ScriptedEngine:
    """One engine; `scripts` are used up in the order of the generate calls."""

    def __init__(self, *, strip_think: bool = False, room_tokens: int = 4096) -> None:
        self.scripts: list[Script] = []
        self.generates: list[dict[str, Any]] = []
        self.policies: list[str] = []
        self.renders: list[dict[str, Any]] = []
        self.derenders: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.strip_think, self.room_tokens = strip_think, room_tokens
        self.broken_derenders = 0
        self._running: dict[str, asyncio.Event] = {}

    # ---- life ----

    async def start(self) -> None:
        app = Starlette(
            routes=[
                Route("/v1/chat/completions/render", self.render, methods=["POST"]),
                Route("/v1/chat/completions/derender", self.derender, methods=["POST"]),
                Route("/inference/v1/generate", self.generate, methods=["POST"]),
                Route("/inference/v1/abort_requests", self.abort, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
            ]
        )
        self._server = _Announcing(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
        self._task = asyncio.create_task(self._server.serve())
        await self._server.up.wait()
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.force_exit = self._server.should_exit = True
        await self._task

    # ---- endpoints ----

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "policy", "max_model_len": self.room_tokens}]})

    async def render(self, request: Request) -> Response:
        body = await request.json()
        self.renders.append(body)
        ids = self.template(body)
        if len(ids) > self.room_tokens:
            message = (
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of {self.room_tokens}."
            )
            return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": 400}}, 400)
        sampling = {name: body[name] for name in ("temperature", "top_p", "max_tokens", "stop") if name in body}
        return JSONResponse({"request_id": "render", "token_ids": ids, "sampling_params": sampling, "model": "policy"})

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.generates.append(body)
        self.policies.append(request.headers.get("x-forgerl-policy", ""))
        script = self.scripts.pop(0)
        if script.status != 200:
            return JSONResponse({"error": "policy_changed"}, status_code=script.status)
        if body["stream"]:
            return StreamingResponse(self._stream(body, script), media_type="text/event-stream")
        ids, finish = [], "abort"
        async for token, reason in self._sample(body["request_id"], script):
            ids += [token] if token is not None else []
            finish = reason or finish
        if script.cut >= 0:
            raise RuntimeError("the engine dies")
        choice = self._choice(ids, script, finish, 0)
        usage = {"prompt_tokens_details": {"cached_tokens": 3}}
        return JSONResponse({"request_id": "r", "choices": [choice], "usage": usage})

    async def _stream(self, body: dict[str, Any], script: Script):
        sent = 0
        async for token, reason in self._sample(body["request_id"], script):
            ids = [token] if token is not None else []
            yield f"data: {json.dumps({'choices': [self._choice(ids, script, reason, sent)]})}\n\n"
            sent += len(ids)
            if sent == script.cut:
                raise RuntimeError("the engine dies")
        yield 'data: {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 3}}}\n\n'
        yield "data: [DONE]\n\n"

    async def _sample(self, request_id: str, script: Script):
        stop = self._running[request_id] = asyncio.Event()
        try:
            for index, token in enumerate(script.ids):
                if index == script.gate_at:
                    script.reached.set()
                    waits = [asyncio.create_task(script.gate.wait()), asyncio.create_task(stop.wait())]
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set() or index == script.abort_after:
                    yield None, "abort"
                    return
                yield token, (script.finish if index == len(script.ids) - 1 else None)
        finally:
            del self._running[request_id]

    def _choice(self, ids: list[int], script: Script, finish: str | None, at: int) -> dict[str, Any]:
        given = script.logprobs or [-0.5] * len(script.ids)
        content = [{"token_id": token, "logprob": given[at + i]} for i, token in enumerate(ids)]
        reason = script.stop_reason if finish == "stop" else None
        return {
            "index": 0,
            "token_ids": ids,
            "logprobs": {"content": content},
            "finish_reason": finish,
            "stop_reason": reason,
        }

    async def abort(self, request: Request) -> Response:
        for name in (await request.json())["request_ids"]:
            request_id = name.removeprefix("generate-tokens-")
            self.aborted.append(request_id)
            if request_id in self._running:
                self._running[request_id].set()
        return Response(status_code=200)

    async def derender(self, request: Request) -> Response:
        body = await request.json()
        self.derenders.append(body)
        if self.broken_derenders:
            self.broken_derenders -= 1
            return JSONResponse({"error": {"message": "busy"}}, 500)
        if not body.get("stream"):
            choice = body["generate_response"]["choices"][0]
            message = self.parse(text_of(choice["token_ids"]))
            return JSONResponse({"choices": [{"index": 0, "message": message, "logprobs": choice.get("logprobs")}]})
        state = body["stream_state"] or {"ids": [], "content": "", "calls": 0}
        choice = body["generate_chunk"]["choices"][0]
        ids = [*state["ids"], *choice["token_ids"]]
        # As vLLM's derenderer does: step by step it shows specials, and leaves them out only of a whole answer.
        message = self.parse(text_of(ids, specials=True))
        content = (message["content"] or "").removesuffix("<")
        new = message["tool_calls"][state["calls"] :]
        calls = [{**call, "index": state["calls"] + i} for i, call in enumerate(new)]
        delta = {"content": content[len(state["content"]) :] or None, "tool_calls": calls}
        state = {"ids": ids, "content": content, "calls": len(message["tool_calls"])}
        return JSONResponse({"chunk": {"choices": [{"delta": delta}]}, "stream_state": state})

    # ---- template and parser ----

    def template(self, body: dict[str, Any]) -> list[int]:
        ids: list[int] = []
        if body.get("tools"):
            ids += [START, *merged_ids("tools\n" + json.dumps(body["tools"])), END, *merged_ids("\n")]
        for message in body["messages"]:
            text = message.get("content") or ""
            if message["role"] == "assistant":
                if message.get("reasoning_content") and not self.strip_think:
                    text = f"<think>{message['reasoning_content']}</think>{text}"
                for call in message.get("tool_calls", []):
                    function = call["function"]
                    shown = {"name": function["name"], "arguments": json.loads(function["arguments"])}
                    text += f"<tool_call>{json.dumps(shown)}</tool_call>"
            ids += [START, *merged_ids(f"{message['role']}\n{text}"), END, *merged_ids("\n")]
        if body.get("add_generation_prompt", True):
            ids += [START, *merged_ids("assistant\n")]
        return ids

    def parse(self, text: str) -> dict[str, Any]:
        calls = []
        for index, found in enumerate(_CALL.findall(text)):
            call = json.loads(found)
            function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            calls.append({"id": f"call{index}", "type": "function", "function": function})
        reasoning = "".join(_THINK.findall(text))
        content = re.sub(r"<tool_call>.*", "", _THINK.sub("", text), flags=re.DOTALL)
        return {"role": "assistant", "content": content or None, "reasoning": reasoning or None, "tool_calls": calls}
