"""A score from a verdict and the turns. It refuses weights: process values are reported as the rules gave them."""

from collections.abc import Sequence

from forgerl.common.v1.score_pb2 import Score, TurnReward

from services.contract.outcomes import FailureClass
from services.reward.domain.rules import rules
from services.reward.domain.turns import Turn


def score_of(performance: float, failure_class: FailureClass, detail: str, turns: Sequence[Turn]) -> Score:
    """The score, with one entry for every rule that a turn broke."""
    process = [
        TurnReward(turn=turn.turn, rule=name, value=value)
        for turn in turns
        for name, rule in rules()
        if (value := rule(turn)) < 0
    ]
    return Score(performance=performance, process=process, detail=detail, failure_class=failure_class.value)
