"""Format: a turn must be whole, say or call something, and its calls must be readable and name a tool on offer.

It refuses degrees: a turn keeps its form or it doesn't.
"""

import json

from services.reward.domain.turns import ToolCall, Turn

CALL_MARKS = ("<tool_call>", "</tool_call>")
"""What is left in the text when the engine's parser could not read a call."""


def penalty(turn: Turn) -> float:
    """-1 for a turn that was cut off, is empty, or holds a malformed call; else 0."""
    if turn.finish_reason == "length" or not (turn.text.strip() or turn.calls):
        return -1.0
    if any(mark in turn.text for mark in CALL_MARKS):
        return -1.0
    return 0.0 if all(_is_well_formed(call, turn.tool_names) for call in turn.calls) else -1.0


def _is_well_formed(call: ToolCall, tool_names: frozenset[str]) -> bool:
    if call.name not in tool_names:
        return False
    try:
        return isinstance(json.loads(call.arguments), dict)
    except ValueError:
        return False
