"""A trajectory as rules and verifiers see it: turns with their calls and results, and the final conversation.

It refuses to trust content: a message that isn't a JSON object counts as empty.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from services.contract.trajectory import NO_PARENT, Node, Trajectory

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it: `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One sampled message. `results`: tool results that answered it; `before`: all text that came before it."""

    turn: int
    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]
    before: str
    token_ids: tuple[int, ...]
    finish_reason: str
    tool_names: frozenset[str]


def turns_of(trajectory: Trajectory, tool_names: frozenset[str]) -> list[Turn]:
    """Every turn but those of lost attempts, in the order of sampling."""
    nodes = {node.node_id: node for node in trajectory.nodes}
    results = _results(trajectory, nodes)
    turns: list[Turn] = []
    for node in trajectory.nodes:
        if not node.trainable:
            continue
        message = parse(node)
        before = "\n".join(text_of(parse(ancestor)) for ancestor in _path(nodes, node)[:-1])
        turns.append(
            Turn(
                turn=node.turn,
                text=text_of(message),
                calls=calls_of(message),
                results=tuple(results.get(node.node_id, ())),
                before=before,
                token_ids=node.token_ids,
                finish_reason=node.finish_reason,
                tool_names=tool_names,
            )
        )
    return turns


def conversation(trajectory: Trajectory) -> list[Message]:
    """Messages from the root to the last turn; empty when nothing was ever sampled."""
    nodes = {node.node_id: node for node in trajectory.nodes}
    last = next((node for node in reversed(trajectory.nodes) if node.trainable), None)
    return [message for node in _path(nodes, last) if (message := parse(node))] if last else []


def parse(node: Node) -> Message:
    """A node's message; empty when it has none that can be read."""
    try:
        message: object = json.loads(node.message_json) if node.message_json else {}
    except ValueError:
        return {}
    return cast(Message, message) if isinstance(message, dict) else {}


def text_of(message: Message) -> str:
    """Reasoning and content of a message as one text."""
    return "\n".join(part for part in (_text(message.get("reasoning_content")), _text(message.get("content"))) if part)


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The tool calls of a message."""
    calls: list[ToolCall] = []
    raw = message.get("tool_calls")
    for call in cast(list[object], raw) if isinstance(raw, list) else []:
        function = cast(Message, call).get("function") if isinstance(call, dict) else None
        named: Message = cast(Message, function) if isinstance(function, dict) else {}
        arguments = named.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(str(named.get("name", "")), text))
    return tuple(calls)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [cast(Message, part).get("text") for part in cast(list[object], content) if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _results(trajectory: Trajectory, nodes: dict[int, Node]) -> dict[int, list[str]]:
    """Texts of tool messages by the turn that they answer: the nearest sampled ancestor."""
    found: dict[int, list[str]] = {}
    for node in trajectory.nodes:
        if node.sampled or node.role != "tool":
            continue
        asker = nodes.get(node.parent_id)
        while asker is not None and not asker.sampled:
            asker = nodes.get(asker.parent_id)
        if asker is not None:
            found.setdefault(asker.node_id, []).append(text_of(parse(node)))
    return found


def _path(nodes: dict[int, Node], node: Node) -> list[Node]:
    path = [node]
    while path[-1].parent_id != NO_PARENT:
        path.append(nodes[path[-1].parent_id])
    return path[::-1]
