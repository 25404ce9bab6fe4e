"""The failure contract as a table, row by row (DESIGN 10)."""

import pytest
from forgerl.common.v1 import task_pb2

from services.contract.outcomes import FailureClass, class_of_outcome, class_of_verdict, treatment


@pytest.mark.parametrize(
    ("name", "trained", "counts", "performance"),
    [
        ("solved", True, True, None),
        ("wrong", True, True, None),
        ("agent_timeout", True, True, 0.0),
        ("context_overflow", True, True, 0.0),
        ("infra", False, False, None),
        ("grader_error", False, False, None),
        ("cancelled", False, False, None),
    ],
)
def test_each_class(name: str, trained: bool, counts: bool, performance: float | None):
    row = treatment(FailureClass(name))
    assert (row.trained, row.counts, row.performance) == (trained, counts, performance)


def test_table_covers_every_class():
    assert len(FailureClass) == 7


def test_outcomes_and_verdicts_name_their_class():
    assert class_of_outcome(task_pb2.OUTCOME_COMPLETED) is None
    assert class_of_outcome(task_pb2.OUTCOME_AGENT_TIMEOUT) is FailureClass.AGENT_TIMEOUT
    assert class_of_outcome(task_pb2.OUTCOME_INFRA) is FailureClass.INFRA
    assert class_of_verdict(1.0) is FailureClass.SOLVED
    assert class_of_verdict(0.49) is FailureClass.WRONG


def test_an_unspecified_outcome_is_refused():
    with pytest.raises(ValueError, match="outcome"):
        class_of_outcome(task_pb2.OUTCOME_UNSPECIFIED)
