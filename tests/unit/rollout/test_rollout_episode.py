"""How an episode's end is decided."""

import pytest

from services.rollout.application import judge_program
from services.rollout.domain.episode import (
    EpisodePlan,
    EpisodeStart,
    Outcome,
    Tally,
    Text,
    TurnServed,
    ending_after,
    gave_up,
)
from services.rollout.ports import ProgramEnd

PLAN = EpisodePlan("tool_loop", "tool_loop", 3, 10.0)
START = EpisodeStart("ep-1", "run-1", 30.0, 60.0)


def test_a_turn_that_wants_more_ends_nothing():
    assert ending_after(PLAN, START, Tally(2.0, 1, 0), TurnServed(Text("[]"), 2.0, 1)) is None


def test_an_answer_ends_it_with_everything_that_was_spent():
    served = TurnServed(Text("[]"), 1.5, outcome=Outcome.COMPLETED, answer=Text("42"))
    ending = ending_after(PLAN, START, Tally(2.0, 2, 1).plus(served), served)
    assert ending is not None
    assert (ending.outcome, ending.answer.inline, ending.agent_wall_s) == (Outcome.COMPLETED, "42", 3.5)
    assert (ending.tool_calls, ending.failed_tool_calls) == (2, 1)


@pytest.mark.parametrize("outcome", [0, Outcome.COMPLETED])
def test_a_spent_budget_outweighs_an_answer(outcome: int):
    served = TurnServed(Text("[]"), 6.0, outcome=outcome, answer=Text("42"))
    ending = ending_after(PLAN, START, Tally(4.5).plus(served), served)
    assert ending is not None
    assert (ending.outcome, ending.detail) == (Outcome.AGENT_TIMEOUT, "agent time 10.5 s of 10 s")


def test_a_called_off_episode_stays_so_however_long_it_took():
    served = TurnServed(Text("[]"), 60.0, outcome=Outcome.CANCELLED)
    ending = ending_after(PLAN, START, Tally().plus(served), served)
    assert ending is not None and ending.outcome == Outcome.CANCELLED


def test_a_long_reason_is_cut():
    assert len(gave_up(START, Outcome.INFRA, "x" * 2000).detail) == 500


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        (ProgramEnd("42", 0, False, 1.0, 2, 200, ""), Outcome.COMPLETED),
        (ProgramEnd("", -1, True, 9.0, 2, 200, ""), Outcome.AGENT_TIMEOUT),
        (ProgramEnd("", 1, False, 1.0, 2, 400, "context_length_exceeded"), Outcome.CONTEXT_OVERFLOW),
        (ProgramEnd("", 1, False, 1.0, 2, 409, "episode_over"), Outcome.CANCELLED),
        (ProgramEnd("", 1, False, 1.0, 2, 503, ""), Outcome.INFRA),
        (ProgramEnd("", 1, False, 1.0, 2, 599, ""), Outcome.INFRA),
        (ProgramEnd("", 1, False, 0.1, 0, 0, ""), Outcome.INFRA),
        (ProgramEnd("", 1, False, 1.0, 2, 200, ""), Outcome.COMPLETED),
    ],
)
def test_whose_doing_a_black_boxs_end_was(end: ProgramEnd, wanted: Outcome):
    assert judge_program(end)[0] is wanted
