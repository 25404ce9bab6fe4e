"""The engine's door, an ASGI middleware inside vLLM's API process: only calls for the weights that are loaded get in.

Starts closed. A call that samples must name the digest of the policy it expects; with another digest, or while the
gate is closed, it is refused with 409 and nothing is sampled. Rendering, parsing, metrics and health pass. With
FORGERL_TOKEN set, everything but health and metrics needs that bearer token.
"""

import asyncio
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_OPEN_TO_ALL = frozenset({"/health", "/metrics", "/ping", "/load", "/version"})
_SAMPLING = frozenset(
    {
        "/inference/v1/generate",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/invocations",
        "/generative_scoring",
    }
)
_ADMIN = "/forgerl/gate"
# A call that passed the gate just before it closed may reach the engine after the abort: look again this often.
_STRAGGLER_S = 0.02
# Calls that were aborted hand their output over at once; one that has not by then won't.
_ABORT_S = 10.0


class EngineGate:
    """Wraps vLLM's app."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._token = f"Bearer {os.environ.get('FORGERL_TOKEN', '')}".encode()
        self._boot_id = secrets.token_hex(8)
        self._is_open, self._digest = False, ""
        # What the sidecar wants to find again: run_id and policy_step.
        self._label: dict[str, Any] = {}
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], dict(scope["headers"])
        if path not in _OPEN_TO_ALL and not self._is_known(headers):
            await _answer(send, 401, {"error": "unauthenticated"})
        elif path == _ADMIN:
            await self._administer(scope, receive, send)
        elif path not in _SAMPLING:
            await self._app(scope, receive, send)
        elif not self._is_open or headers.get(b"x-forgerl-policy", b"").decode("latin-1") != self._digest:
            await _answer(send, 409, {"error": "policy_changed", "open": self._is_open, "policy_digest": self._digest})
        else:
            await self._serve(scope, receive, send)

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        given = headers.get(b"authorization", b"")
        return self._token == b"Bearer " or hmac.compare_digest(given, self._token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_flight += 1
        self._idle.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        aborted = 0
        if scope["method"] == "POST":
            order = json.loads(await _body(receive) or b"{}")
            if order.get("boot_id", self._boot_id) != self._boot_id:
                # The weights were loaded into an engine that has died since.
                await _answer(send, 409, {"error": "another_boot", "boot_id": self._boot_id})
                return
            self._is_open = bool(order["open"])
            self._digest = order.get("policy_digest", self._digest)
            self._label |= {name: order[name] for name in ("run_id", "policy_step") if name in order}
            if not self._is_open and order.get("drain") in ("wait", "abort"):
                aborted = await self._drain(scope["app"].state.engine_client, order)
        state = {"open": self._is_open, "policy_digest": self._digest, "boot_id": self._boot_id, **self._label}
        await _answer(send, 200, {**state, "in_flight": self._in_flight, "aborted": aborted})

    async def _drain(self, engine: Any, order: dict[str, Any]) -> int:
        """End calls under way, with their output so far; with "wait" only at the deadline. How many were ended."""
        deadline_s = float(order.get("deadline_s", _ABORT_S))
        if order["drain"] == "wait" and await self._is_idle_within(deadline_s):
            return 0
        aborted = self._in_flight
        await engine.pause_generation(mode="abort", clear_cache=False)
        until_s = asyncio.get_running_loop().time() + min(deadline_s, _ABORT_S)
        while not await self._is_idle_within(_STRAGGLER_S) and asyncio.get_running_loop().time() < until_s:
            running = engine.output_processor
            await engine.abort([*running.request_states, *running.parent_requests], internal=True)
        return aborted

    async def _is_idle_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _answer(send: Send, status: int, content: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})
