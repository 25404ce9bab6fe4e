"""The episode's LLM over HTTP, in the OpenAI chat dialect, at the gateway's door.

It refuses to retry (the workflow does) and to log what was said.
"""

from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from services.kernel.errors import Permanent, Transient
from services.kernel.telemetry import current_traceparent
from services.rollout.ports import ContextOverflow, EpisodeSealed, KeyRefused, ModelCall, Reply

QUEUE_HEADER = "x-forgerl-queue-s"
ATTEMPT_HEADER = "x-forgerl-attempt"
TRANSIENT_STATUS = frozenset({408, 425, 429})


def http_client(connections: int) -> httpx.AsyncClient:
    """A client that keeps up to `connections` connections open."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(None, connect=5.0), trust_env=False)


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Implements `ports.Model`."""

    client: httpx.AsyncClient

    async def complete(self, call: ModelCall) -> Reply:
        """POST /chat/completions, unary."""
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
            answer = await self.client.post(
                f"{call.credential.base_url}/chat/completions",
                content=orjson.dumps(body),
                headers={name: value for name, value in headers.items() if value},
                timeout=httpx.Timeout(call.timeout_s, connect=5.0),
            )
        except httpx.HTTPError as error:
            raise Transient(f"gateway: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            raise refusal(answer)
        return reply_of(answer)


def reply_of(answer: httpx.Response) -> Reply:
    """The first choice. Raises Transient for a body that was cut off or is no completion."""
    try:
        choice = orjson.loads(answer.content)["choices"][0]
        return Reply(
            dict(choice["message"]),
            str(choice.get("finish_reason") or ""),
            float(answer.headers.get(QUEUE_HEADER) or 0.0),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Transient(f"gateway: not a completion: {answer.content[:200]!r}") from error


def refusal(answer: httpx.Response) -> Exception:
    """What an error answer means to an episode."""
    code, message = error_fields(answer.content)
    line = f"gateway: {answer.status_code} {code}: {message}"[:300]
    if code == "context_length_exceeded":
        return ContextOverflow(line)
    if answer.status_code == 401:
        return KeyRefused(line)
    if answer.status_code == 409:
        return EpisodeSealed(line)
    if answer.status_code >= 500 or answer.status_code in TRANSIENT_STATUS:
        return Transient(line)
    return Permanent(line)


def error_fields(content: bytes) -> tuple[str, str]:
    """Code and message of an OpenAI-style error body; empty where it isn't one."""
    try:
        error = orjson.loads(content)["error"]
        return str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", content[:200].decode(errors="replace")
