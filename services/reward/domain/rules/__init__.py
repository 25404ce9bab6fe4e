"""Process rules, one a file: a turn in, a penalty in [-1, 0] out. A new rule is a file and a line here."""

from collections.abc import Callable

from services.reward.domain.rules import failing_tool_call, form, language_mixing, repetition
from services.reward.domain.turns import Turn

Rule = Callable[[Turn], float]


def rules() -> tuple[tuple[str, Rule], ...]:
    """Every rule by the name under which its values are reported."""
    return (
        ("format", form.penalty),
        ("failing_tool_call", failing_tool_call.penalty),
        ("repetition", repetition.penalty),
        ("language_mixing", language_mixing.penalty),
    )
