"""Each process rule on turns worked out by hand, and the turns that a trajectory is read as."""

import json
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.contract.outcomes import FailureClass
from services.contract.trajectory import Node, Span, Trajectory
from services.reward.domain.rules import failing_tool_call, form, language_mixing, repetition, rules
from services.reward.domain.scoring import score_of
from services.reward.domain.scripts import scripts_of
from services.reward.domain.turns import ToolCall, Turn, conversation, messages_of, turns_of

TOOLS = frozenset({"python"})
PLAIN = Turn(0, "The answer is 4.", (), (), scripts_of("What is 2 + 2?"), tuple(range(6)), "stop", TOOLS)


def call(name: str = "python", arguments: str = '{"code": "2+2"}') -> ToolCall:
    return ToolCall(name, arguments)


@pytest.mark.parametrize(
    ("turn", "value"),
    [
        (PLAIN, 0.0),
        (replace(PLAIN, text="", calls=(call(),)), 0.0),
        (replace(PLAIN, text="", calls=(call(), call(arguments="{broken"))), -1.0),
        (replace(PLAIN, text="", calls=(call(arguments="[1]"),)), -1.0),
        (replace(PLAIN, text="", calls=(call(name="rm"),)), -1.0),
        (replace(PLAIN, text='<tool_call>{"name": "python"'), -1.0),
        (replace(PLAIN, text="  "), -1.0),
        (replace(PLAIN, finish_reason="length"), -1.0),
    ],
)
def test_format(turn: Turn, value: float):
    assert form.penalty(turn) == value


@pytest.mark.parametrize(
    ("results", "value"),
    [
        ((), 0.0),
        (("4",), 0.0),
        (("error: no tool rm",), -1.0),
        (("4", "Error: x", "5", " error"), -0.5),
        (("no error",), 0.0),
    ],
)
def test_failing_tool_call(results: tuple[str, ...], value: float):
    assert failing_tool_call.penalty(replace(PLAIN, results=results)) == value


def test_repetition():
    assert repetition.penalty(replace(PLAIN, token_ids=(1, 2) * 11)) == 0.0  # 22 tokens: too short
    assert repetition.penalty(replace(PLAIN, token_ids=tuple(range(100)))) == 0.0
    # 40 tokens of period 2: 37 runs of four, 2 of them distinct
    assert repetition.penalty(replace(PLAIN, token_ids=(1, 2) * 20)) == pytest.approx(-(1 - 2 / 37))
    # 24 new tokens and 16 repeated: of 37 runs 13 were seen before (21 are new, 3 cross the seam): tolerated
    assert repetition.penalty(replace(PLAIN, token_ids=(*range(24), *range(16)))) == 0.0


@given(st.lists(st.integers(0, 5), min_size=24, max_size=80))
def test_repetition_counts_every_run_whatever_the_quick_look_says(ids: list[int]):
    runs = [tuple(ids[at : at + 4]) for at in range(len(ids) - 3)]
    share = 1 - len(set(runs)) / len(runs)
    assert repetition.penalty(replace(PLAIN, token_ids=ids)) == (-share if share > 0.5 else 0.0)
    assert repetition.fewest_pairs(ids) <= len(set(pairwise(ids)))


def test_the_quick_look_spares_ordinary_text_the_count():
    # 1,000 different pairs in 8,192 places: a place in sixteen is met twice.
    assert repetition.fewest_pairs(range(1_001)) > 900
    assert repetition.fewest_pairs(memoryview(array("I", [2**32 - 1, 0] * 500))) == 2


@pytest.mark.parametrize(
    ("text", "before", "value"),
    [
        ("four", "two plus two?", 0.0),
        ("four четыре", "two plus two?", -6 / 10),
        ("four четыре", "два plus two?", 0.0),
        ("答案 is four", "two plus two?", -2 / 8),
        ("答えは四", "日本語で", 0.0),
        ("42", "two plus two?", 0.0),
        ("a" * 39 + "я", "two", 0.0),
        ("naïve café", "plain", 0.0),
    ],
)
def test_language_mixing(text: str, before: str, value: float):
    assert language_mixing.penalty(replace(PLAIN, text=text, scripts_before=scripts_of(before))) == pytest.approx(value)


def test_every_rule_stays_within_its_range():
    worst = Turn(0, "<tool_call>фы", (call("x"),), ("error",), scripts_of("a"), (1,) * 99, "length", TOOLS)
    values = [rule(worst) for _, rule in rules()]
    assert all(-1.0 <= value < 0.0 for value in values)


def test_a_score_names_turn_and_rule():
    bad = replace(PLAIN, turn=3, text="")
    score = score_of(0.0, FailureClass.WRONG, "wrong: ''", [PLAIN, bad])
    assert [(term.turn, term.rule, term.value) for term in score.process] == [(3, "format", -1.0)]
    assert (score.performance, score.failure_class, score.detail) == (0.0, "wrong", "wrong: ''")


def node(node_id: int, parent: int, kind: str, turn: int, message: dict[str, object], *, infra: bool = False) -> Node:
    role = str(message.get("role", ""))
    if kind == "context":
        return Node(node_id, parent, "context", -1, role, json.dumps(message), (1,))
    spans = (Span(0, 1, 0, "d"),)
    text = json.dumps(message)
    return Node(node_id, parent, "sampled", turn, role, text, (1,), (-1.0,), spans, 1.0, 1.0, "stop", infra=infra)


CALLING = {
    "role": "assistant",
    "reasoning_content": "add",
    "content": None,
    "tool_calls": [{"id": "1", "function": {"name": "python", "arguments": '{"code": "2+2"}'}}],
}
TREE = Trajectory(
    "e",
    "r",
    (
        node(0, -1, "context", -1, {"role": "user", "content": "2+2?"}),
        node(1, 0, "sampled", 0, CALLING),
        node(2, 1, "context", -1, {"role": "tool", "content": "error: gone"}),
        node(3, 2, "context", -1, {"role": "tool", "content": "4"}),
        node(4, 3, "sampled", 1, {"role": "assistant", "content": [{"type": "text", "text": "4"}]}),
        node(5, 0, "sampled", 2, {"role": "assistant", "content": "lost"}, infra=True),
    ),
)


def test_turns_hold_their_calls_and_the_results_that_answered_them():
    first, second = turns_of(TREE, messages_of(TREE), TOOLS)
    assert first.calls == (ToolCall("python", '{"code": "2+2"}'),)
    assert first.results == ("error: gone", "4")
    assert first.text == "add"
    assert (second.turn, second.text, second.results) == (1, "4", ())
    # "2+2?" and "4" have no letters, the first turn and its first result have Latin ones.
    assert (first.scripts_before, second.scripts_before) == (frozenset(), frozenset({"LATIN"}))


def test_conversation_ends_with_the_last_turn_that_was_not_lost():
    assert [message["role"] for message in conversation(TREE, messages_of(TREE))] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert conversation(Trajectory("e", "r", ()), {}) == []


def test_a_message_that_cannot_be_read_counts_as_empty():
    broken = replace(TREE.nodes[4], message_json="{nope")
    tree = replace(TREE, nodes=(*TREE.nodes[:4], broken))
    turns = turns_of(tree, messages_of(tree), TOOLS)
    assert turns[-1].text == ""
