"""The episode's LLM over HTTP, in the OpenAI chat dialect, at the gateway's door.

It refuses to retry (the workflow does) and to log what was said.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from services.kernel.errors import Permanent, Transient
from services.kernel.telemetry import current_traceparent
from services.rollout.ports import ContextOverflow, EpisodeSealed, KeyRefused, ModelCall, Reply

QUEUE_HEADER = "x-forgerl-queue-s"
ATTEMPT_HEADER = "x-forgerl-attempt"
TRANSIENT_STATUS = frozenset({408, 425, 429})


CONNECT_S = 5.0
# What a call can die of on its way, before there is an answer or within it.
FAILURES = (aiohttp.ClientError, TimeoutError)


def http_client(connections: int) -> aiohttp.ClientSession:
    """A client that keeps up to `connections` connections open; it adds nothing of its own to a request."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("content-type",),
    )


@dataclass(frozen=True, slots=True)
class Connections:
    """Closes the client when the process ends; a part, the first, so that it is the last to stop."""

    client: aiohttp.ClientSession

    async def run(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.client.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, read to its end."""

    status: int
    content: bytes
    queue_s: str


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Implements `ports.Model`."""

    client: aiohttp.ClientSession

    async def complete(self, call: ModelCall) -> Reply:
        """POST /chat/completions, unary. `call.timeout_s` bounds the wait for a connection, and each silence."""
        body: dict[str, Any] = {"model": call.credential.model, "messages": call.messages}
        if call.tools:
            body["tools"] = [tool.openai() for tool in call.tools]
        headers = {
            "authorization": f"Bearer {call.credential.api_key}",
            "content-type": "application/json",
            "idempotency-key": call.idempotency_key,
            "traceparent": current_traceparent(),
        }
        try:
            async with self.client.post(
                f"{call.credential.base_url}/chat/completions",
                data=orjson.dumps(body),
                headers={name: value for name, value in headers.items() if value},
                timeout=aiohttp.ClientTimeout(connect=call.timeout_s, sock_connect=CONNECT_S, sock_read=call.timeout_s),
                allow_redirects=False,
            ) as response:
                answer = Answer(response.status, await response.read(), response.headers.get(QUEUE_HEADER, ""))
        except (*FAILURES, OSError) as error:
            raise Transient(f"gateway: {type(error).__name__}: {error}") from error
        if answer.status != 200:
            raise refusal(answer)
        return reply_of(answer)


def reply_of(answer: Answer) -> Reply:
    """The first choice. Raises Transient for a body that was cut off or is no completion."""
    try:
        choice = orjson.loads(answer.content)["choices"][0]
        return Reply(
            dict(choice["message"]),
            str(choice.get("finish_reason") or ""),
            float(answer.queue_s or 0.0),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Transient(f"gateway: not a completion: {answer.content[:200]!r}") from error


def refusal(answer: Answer) -> Exception:
    """What an error answer means to an episode."""
    code, message = error_fields(answer.content)
    line = f"gateway: {answer.status} {code}: {message}"[:300]
    if code == "context_length_exceeded":
        return ContextOverflow(line)
    if answer.status == 401:
        return KeyRefused(line)
    if answer.status == 409:
        return EpisodeSealed(line)
    if answer.status >= 500 or answer.status in TRANSIENT_STATUS:
        return Transient(line)
    return Permanent(line)


def error_fields(content: bytes) -> tuple[str, str]:
    """Code and message of an OpenAI-style error body; empty where it isn't one."""
    try:
        error = orjson.loads(content)["error"]
        return str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", content[:200].decode(errors="replace")
