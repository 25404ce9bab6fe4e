"""Puts the deltas of a streamed message together, and makes each delta acceptable to strict clients.

It refuses a tool-call delta whose first part names no id: clients treat that as an error.
"""

import json
from dataclasses import dataclass, field
from typing import cast

from services.gateway.domain.messages import Message, ToolCall


@dataclass(slots=True)
class _Call:
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Assembly:
    """`call_prefix` begins the ids that are made up when the engine gives none."""

    call_prefix: str
    content: str = ""
    reasoning: str = ""
    _calls: dict[int, _Call] = field(default_factory=dict[int, _Call])

    def add_text(self, content: str, reasoning: str) -> None:
        """Text of a delta."""
        self.content += content
        self.reasoning += reasoning

    def add_tool_calls(self, text: str) -> str:
        """Take the tool-call parts of a delta (JSON list) in; answers them with index, id, type and name in place."""
        parts: list[dict[str, object]] = []
        for raw in cast(list[dict[str, object]], json.loads(text)):
            index = raw.get("index")
            parts.append(self._part(index if isinstance(index, int) else len(self._calls), raw))
        return json.dumps(parts)

    def _part(self, index: int, raw: dict[str, object]) -> dict[str, object]:
        function = cast(dict[str, object], raw.get("function") or {})
        name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
        first = index not in self._calls
        call = self._calls.setdefault(index, _Call())
        call.arguments += arguments
        if not first:
            call.name = call.name or name
            return {"index": index, "function": {"arguments": arguments}}
        call.call_id, call.name = str(raw.get("id") or f"{self.call_prefix}-{index}"), name
        return {
            "index": index,
            "id": call.call_id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def message(self) -> Message:
        """The message so far."""
        calls = tuple(ToolCall(c.call_id, c.name, c.arguments) for _, c in sorted(self._calls.items()))
        return Message("assistant", self.content, self.reasoning, calls)
