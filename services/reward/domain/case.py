"""An episode's case: its task, its answer and its trajectory, which come in any order.

It refuses to be complete before all three are there, and after it was dismissed or decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.reward.v1.case_pb2 import AnswerNoted, CaseDecided, CaseDismissed, TaskNoted, TrajectoryNoted
from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class Case:
    """A fold of `reward.case/<episode>`."""

    task: TaskNoted | None = None
    answer: AnswerNoted | None = None
    trajectory: BlobRef | None = None
    dismissed: bool = False
    decided: bool = False

    @property
    def complete(self) -> bool:
        """Whether it can be scored now."""
        known = self.task is not None and self.answer is not None and self.trajectory is not None
        return known and not self.dismissed and not self.decided


def fold(records: Sequence[Message], case: Case | None = None) -> Case:
    """The case after some more records."""
    state = case or Case()
    task, answer, trajectory = state.task, state.answer, state.trajectory
    dismissed, decided = state.dismissed, state.decided
    for record in records:
        match record:
            case TaskNoted():
                task = record
            case AnswerNoted():
                answer = record
            case TrajectoryNoted():
                trajectory = record.trajectory
            case CaseDismissed():
                dismissed = True
            case CaseDecided():
                decided = True
            case _:
                raise TypeError(f"not a record of a case: {type(record).__name__}")
    return Case(task, answer, trajectory, dismissed, decided)
