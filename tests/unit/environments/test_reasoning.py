"""Reasoning tasks: the package's verifier decides, without its partial credit."""

import json

import pytest

from services.environments.interface import InvalidTask, Task, ToolFailure
from services.environments.reasoning import KINDS, ReasoningEnvironment, content_key


@pytest.fixture(scope="module")
def environment() -> ReasoningEnvironment:
    return ReasoningEnvironment()


def puzzle(kind: str, answer: str) -> Task:
    return Task("reasoning", "t", "train", json.dumps({"kind": kind, "question": "?", "answer": answer}).encode())


@pytest.mark.parametrize(
    ("kind", "wanted", "given", "score"),
    [
        ("chain_sum", "191", "191", 1.0),
        ("chain_sum", "191", " <think>8+3=11</think>191\n", 1.0),
        ("chain_sum", "191", "+191.0", 1.0),
        ("chain_sum", "191", "192", 0.0),
        ("gcd", "2", "2", 1.0),
        ("gcd", "2", "12", 0.0),
        ("letter_counting", "3", "", 0.0),
        ("letter_counting", "3", "3", 1.0),
    ],
)
def test_verdict(environment: ReasoningEnvironment, kind: str, wanted: str, given: str, score: float) -> None:
    assert environment.verify(puzzle(kind, wanted), given, []).score == score


def test_a_kind_that_is_not_asked_here_is_named(environment: ReasoningEnvironment) -> None:
    with pytest.raises(InvalidTask, match="task t: kind: given 'riddle'; allowed chain_sum, gcd, letter_counting"):
        environment.verify(puzzle("riddle", "42"), "42", [])


def test_the_packages_own_answers_are_right(environment: ReasoningEnvironment) -> None:
    kinds: set[str] = set()
    for index in range(40):
        task = environment.task("heldout", index)
        fields = json.loads(task.payload)
        kinds.add(fields["kind"])
        assert environment.verify(task, fields["answer"], []).score == 1.0
        assert environment.messages(task)[1]["content"] == fields["question"]
    assert kinds == set(KINDS)


def test_equal_questions_share_a_key_whatever_their_order() -> None:
    assert content_key("gcd", {"metadata": {"numbers": [6, 4]}}) == content_key(
        "gcd", {"metadata": {"numbers": [4, 6]}}
    )
    plus, turned = ({"metadata": {"expression": text}} for text in ("6 + 4", "4 + 6"))
    assert content_key("chain_sum", plus) == content_key("chain_sum", turned)
    minus, other = ({"metadata": {"expression": text}} for text in ("6 - 4", "4 - 6"))
    assert content_key("chain_sum", minus) != content_key("chain_sum", other)


class NoSandbox:
    async def run_python(self, code: str, timeout_s: float) -> None:
        raise AssertionError("nothing may run")


async def test_a_tool_call_is_refused_as_a_message(environment: ReasoningEnvironment) -> None:
    with pytest.raises(ToolFailure, match="no tools in this task"):
        await environment.call_tool(environment.task("train", 0), "python", {"code": "1"}, NoSandbox())  # type: ignore[arg-type]
