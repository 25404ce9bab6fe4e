"""What a model's message means to a tool loop. Pure: it reads messages in OpenAI form and makes new ones.

It refuses to guess at tool calls in text: only what the gateway parsed as a call is one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model made. `arguments` is None where they aren't a JSON object; `raw` is what was sent."""

    call_id: str
    name: str
    arguments: JsonObject | None
    raw: str


def assistant_message(message: JsonObject) -> dict[str, object]:
    """The model's message as it is sent back in the next turn: what it said, without empty and provider fields."""
    kept: dict[str, object] = {"role": "assistant", "content": message.get("content") or ""}
    for field in ("reasoning_content", "tool_calls"):
        if message.get(field):
            kept[field] = message[field]
    return kept


def tool_calls(message: JsonObject) -> list[ToolCall]:
    """The calls in a model's message, in its order."""
    found = cast("Sequence[JsonObject]", message.get("tool_calls") or ())
    calls: list[ToolCall] = []
    for position, entry in enumerate(found):
        function = cast("JsonObject", entry.get("function") or {})
        raw = str(function.get("arguments") or "{}")
        calls.append(
            ToolCall(str(entry.get("id") or f"call-{position}"), str(function.get("name")), json_object(raw), raw)
        )
    return calls


def json_object(text: str) -> JsonObject | None:
    """The JSON object in a text, or None."""
    try:
        parsed: object = json.loads(text)
    except ValueError:
        return None
    return cast("JsonObject", parsed) if isinstance(parsed, dict) else None


def tool_message(call: ToolCall, result: str) -> dict[str, object]:
    """A tool's answer, as the next turn's prompt holds it."""
    return {"role": "tool", "tool_call_id": call.call_id, "content": result}


def program_answer(stdout: str) -> str:
    """A black box's answer: `answer` of the JSON object in its last line, else that line itself, else nothing."""
    lines = [line for line in stdout.splitlines() if line.strip()]
    if not lines:
        return ""
    fields = json_object(lines[-1])
    if fields is not None and isinstance(fields.get("answer"), str):
        return str(fields["answer"])
    return lines[-1].strip()
