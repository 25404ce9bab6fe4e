"""The failure contract: what each class of ending means for reward, training and the group (DESIGN 10).

It refuses silent zeros: a class without a reward has `performance` None, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum

from forgerl.common.v1 import task_pb2


class FailureClass(StrEnum):
    """How an episode ended, in the words that scores, ledgers and metrics use."""

    SOLVED = "solved"
    WRONG = "wrong"
    AGENT_TIMEOUT = "agent_timeout"
    CONTEXT_OVERFLOW = "context_overflow"
    INFRA = "infra"
    GRADER_ERROR = "grader_error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Treatment:
    """`trained`: its tokens may be trained. `counts`: it is a member of its group's statistics.

    `performance`: the fixed performance reward; None where the verifier decides or where there is no reward at all.
    """

    trained: bool
    counts: bool
    verified: bool
    performance: float | None


def treatment(failure_class: FailureClass) -> Treatment:
    """The row of the table for a class."""
    match failure_class:
        case FailureClass.SOLVED | FailureClass.WRONG:
            return Treatment(trained=True, counts=True, verified=True, performance=None)
        case FailureClass.AGENT_TIMEOUT | FailureClass.CONTEXT_OVERFLOW:
            return Treatment(trained=True, counts=True, verified=False, performance=0.0)
        case FailureClass.INFRA | FailureClass.GRADER_ERROR | FailureClass.CANCELLED:
            return Treatment(trained=False, counts=False, verified=False, performance=None)


SOLVED_FROM = 0.5
"""Performance from which an episode counts as solved, in success rates and in `failure_class`."""


def class_of_verdict(performance: float) -> FailureClass:
    """The class of an episode that the verifier judged."""
    return FailureClass.SOLVED if performance >= SOLVED_FROM else FailureClass.WRONG


def class_of_outcome(outcome: task_pb2.Outcome) -> FailureClass | None:
    """The class that an outcome fixes; None where the verifier decides. Raises ValueError on an unknown outcome."""
    match outcome:
        case task_pb2.OUTCOME_COMPLETED:
            return None
        case task_pb2.OUTCOME_AGENT_TIMEOUT:
            return FailureClass.AGENT_TIMEOUT
        case task_pb2.OUTCOME_CONTEXT_OVERFLOW:
            return FailureClass.CONTEXT_OVERFLOW
        case task_pb2.OUTCOME_INFRA:
            return FailureClass.INFRA
        case task_pb2.OUTCOME_CANCELLED:
            return FailureClass.CANCELLED
        case _:
            raise ValueError(
                f"outcome: given {outcome}; allowed completed, agent_timeout, context_overflow, infra, cancelled"
            )
