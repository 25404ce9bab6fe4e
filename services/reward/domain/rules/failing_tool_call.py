"""Failing tool calls: the share of a turn's results that are errors. It refuses to judge calls that never got a result.

Environments hand a failed call's reason to the model as a result that begins with "error" (`ToolFailure`).
"""

from services.reward.domain.turns import Turn

ERROR = "error"


def penalty(turn: Turn) -> float:
    """-(failed results / results); 0 without results."""
    failed = sum(result.lstrip().lower().startswith(ERROR) for result in turn.results)
    return -failed / len(turn.results) if failed else 0.0
