"""A trajectory as rules and verifiers see it: turns with their calls and results, and the final conversation.

It refuses to trust content: a message that isn't a JSON object counts as empty.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from services.contract.trajectory import NO_PARENT, Node, Trajectory
from services.reward.domain.scripts import scripts_of

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it: `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One sampled message. `results`: tool results that answered it; `scripts_before`: writing systems used before."""

    turn: int
    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]
    scripts_before: frozenset[str]
    token_ids: Sequence[int]
    finish_reason: str
    tool_names: frozenset[str]


def messages_of(trajectory: Trajectory) -> dict[int, Message]:
    """Every node's message, by the node's id."""
    return {node.node_id: parse(node) for node in trajectory.nodes}


def turns_of(trajectory: Trajectory, messages: Mapping[int, Message], tool_names: frozenset[str]) -> list[Turn]:
    """Every turn but those of lost attempts, in the order of sampling; `messages`: those of the trajectory."""
    nodes = {node.node_id: node for node in trajectory.nodes}
    texts = {node_id: text_of(message) for node_id, message in messages.items()}
    results = _results(trajectory, nodes, texts)
    # Parents come first, so one pass is enough: a turn's context is never put together.
    scripts: dict[int, frozenset[str]] = {NO_PARENT: frozenset()}
    turns: list[Turn] = []
    for node in trajectory.nodes:
        before = scripts[node.parent_id]
        scripts[node.node_id] = before | scripts_of(texts[node.node_id])
        if node.trainable:
            turns.append(
                Turn(
                    turn=node.turn,
                    text=texts[node.node_id],
                    calls=calls_of(messages[node.node_id]),
                    results=tuple(results.get(node.node_id, ())),
                    scripts_before=before,
                    token_ids=node.token_ids,
                    finish_reason=node.finish_reason,
                    tool_names=tool_names,
                )
            )
    return turns


def conversation(trajectory: Trajectory, messages: Mapping[int, Message]) -> list[Message]:
    """Those of its messages that lead from the root to the last turn; empty when nothing was ever sampled."""
    nodes = {node.node_id: node for node in trajectory.nodes}
    last = next((node for node in reversed(trajectory.nodes) if node.trainable), None)
    return [message for node in _path(nodes, last) if (message := messages[node.node_id])] if last else []


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


def _results(trajectory: Trajectory, nodes: dict[int, Node], texts: dict[int, str]) -> dict[int, list[str]]:
    """Texts of tool messages by the turn that they answer: the nearest sampled ancestor."""
    found: dict[int, list[str]] = {}
    for node in trajectory.nodes:
        if node.sampled or node.role != "tool":
            continue
        asker = nodes.get(node.parent_id)
        while asker is not None and not asker.sampled:
            asker = nodes.get(asker.parent_id)
        if asker is not None:
            found.setdefault(asker.node_id, []).append(texts[node.node_id])
    return found


def _path(nodes: dict[int, Node], node: Node) -> list[Node]:
    path = [node]
    while path[-1].parent_id != NO_PARENT:
        path.append(nodes[path[-1].parent_id])
    return path[::-1]
