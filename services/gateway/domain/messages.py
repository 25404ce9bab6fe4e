"""Chat messages as the gateway understands them, and the canonical form by which they are matched.

It refuses content that it can't keep exact (anything but text); it never changes what a policy sampled.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

ROLES = ("system", "developer", "user", "assistant", "tool")

_VOLATILE_LINE = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)
"""Some clients put a line that changes with every request into the system prompt: matching leaves it out."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class BadMessage(ValueError):
    """A message that can't be used; `field`, `given` and `allowed` say what is wrong."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field}: given {given!r}; allowed {allowed}")
        self.field, self.given, self.allowed = field, given, allowed


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call; `arguments` is the text as it was written, JSON or not."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; absent text is ""."""

    role: str
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


def parse_message(raw: object, where: str) -> Message:
    """A message of the OpenAI dialect, nulls and unknown fields ignored. Raises BadMessage."""
    if not isinstance(raw, Mapping):
        raise BadMessage(where, type(raw).__name__, "an object with role and content")
    fields = cast(Mapping[str, object], raw)
    role = fields.get("role")
    if role not in ROLES:
        raise BadMessage(f"{where}.role", role, ", ".join(ROLES))
    return Message(
        role=str(role),
        content=_text(fields.get("content"), f"{where}.content"),
        reasoning=_text(fields.get("reasoning_content") or fields.get("reasoning"), f"{where}.reasoning_content"),
        tool_calls=_tool_calls(fields.get("tool_calls"), f"{where}.tool_calls"),
        tool_call_id=str(fields.get("tool_call_id") or ""),
        name=str(fields.get("name") or ""),
    )


def parse_messages(raw: object) -> tuple[Message, ...]:
    """The messages of a request; at least one. Raises BadMessage."""
    if not isinstance(raw, list) or not raw:
        raise BadMessage("messages", "nothing" if not raw else "no list", "a list of at least one message")
    messages = tuple(parse_message(item, f"messages[{index}]") for index, item in enumerate(cast(list[object], raw)))
    for index, message in enumerate(messages):
        # JSON can carry half of a surrogate pair, which no tokenizer takes.
        if not message.content.isascii() and _LONE_SURROGATE.search(message.content):
            raise BadMessage(f"messages[{index}].content", "half of a surrogate pair", "text that has a form in UTF-8")
    return messages


def _text(raw: object, where: str) -> str:
    if raw is None:
        return ""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, Sequence):
        raise BadMessage(where, type(raw).__name__, "text, or a list of text parts")
    parts: list[str] = []
    for index, part in enumerate(cast(Sequence[object], raw)):
        kind = cast(Mapping[str, object], part).get("type") if isinstance(part, Mapping) else type(part).__name__
        text = cast(Mapping[str, object], part).get("text") if isinstance(part, Mapping) else None
        if kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
            raise BadMessage(f"{where}[{index}].type", kind, "'text'")
        parts.append(text)
    return "\n".join(parts)


def _tool_calls(raw: object, where: str) -> tuple[ToolCall, ...]:
    if not raw:
        return ()
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise BadMessage(where, type(raw).__name__, "a list of function calls")
    calls: list[ToolCall] = []
    for index, item in enumerate(cast(Sequence[object], raw)):
        call = _object(item)
        named = _object(call.get("function"))
        name, arguments = named.get("name"), named.get("arguments")
        if not isinstance(name, str):
            raise BadMessage(f"{where}[{index}].function.name", name, "text")
        written = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
        calls.append(ToolCall(str(call.get("id") or ""), name, written))
    return tuple(calls)


def _object(raw: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], raw) if isinstance(raw, Mapping) else {}


def to_fields(message: Message) -> dict[str, object]:
    """The message in the OpenAI dialect, without empty fields; what it was written as."""
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        fields["tool_call_id"] = message.tool_call_id
    if message.name:
        fields["name"] = message.name
    return fields


def to_json(message: Message) -> str:
    """The message as JSON text."""
    return json.dumps(to_fields(message), separators=(",", ":"))


def from_json(text: str) -> Message:
    """Inverse of `to_json`."""
    return parse_message(json.loads(text), "message")


def renderable(message: Message) -> Message:
    """The message with tool arguments that every chat template can load: text that is no JSON object is wrapped."""
    if all(_is_object(call.arguments) for call in message.tool_calls):
        return message
    calls = tuple(
        call if _is_object(call.arguments) else replace(call, arguments=json.dumps({"arguments": call.arguments}))
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def match_key(message: Message) -> str:
    """Equal for messages that mean the same: argument order, nulls, call ids, reasoning and outer space don't count.

    Reasoning is left out since many clients drop it when they send a turn back.
    """
    assistant = message.role == "assistant"
    content = message.content.strip() if assistant else message.content
    if message.role in ("system", "developer"):
        content = _VOLATILE_LINE.sub("", content)
    calls = [[call.name, _canonical(call.arguments)] for call in message.tool_calls]
    parts = [message.role, content, message.name, "" if assistant else message.tool_call_id, calls]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """JSON text that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _canonical(arguments: str) -> str:
    try:
        return canonical_json(json.loads(arguments or "{}"))
    except ValueError:
        return arguments.strip()


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
