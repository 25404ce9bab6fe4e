"""Demonstrations: worked examples by hand, tools that really answered, mixes as announced, and no held-out task."""

import json
import random
from collections import Counter

import pytest

from services.cli.model.arithmetic import ArithmeticSandbox
from services.cli.model.demonstrations import Demonstration, Demonstrator
from services.cli.model.made_up import MAX_LINE_CHARS, made_up_corpus
from services.cli.model.tokenizer import train_tokenizer
from services.cli.model.tokens import ConversationTokeniser, own_tokens
from services.cli.model.working_out import worked_out
from services.environments.corpus import shipped_corpus
from services.environments.registry import environments
from services.environments.tool import printing

SUM = "State the final answer to the following arithmetic problem: {} ="
GCD = "Find the Greatest Common Divisor (GCD) of these numbers: 12, 18. Give only the GCD as your final answer."


@pytest.mark.parametrize(
    ("kind", "question", "steps"),
    [
        ("chain_sum", SUM.format("98 + 93"), "8+3=11,9+9+1=19"),
        ("chain_sum", SUM.format("6 + 0"), "6+0=6"),
        ("chain_sum", SUM.format("43 - 14"), "13-4=9,4-1-1=2"),
        ("chain_sum", SUM.format("14 - 43"), "-13-4=9,4-1-1=2"),
        ("chain_sum", SUM.format("50 - 41"), "10-1=9,5-4-1=0"),
        ("gcd", GCD, "12 6 4 3 2 1;18 9 6 3 2 1"),
        ("letter_counting", 'How many times does the letter "e" appear in the text: "Ebb tide"?', "E1bb tide2"),
    ],
)
def test_worked_out(kind: str, question: str, steps: str) -> None:
    assert worked_out(kind, question) == steps


@pytest.mark.parametrize(("kind", "question"), [("maths", "1"), ("chain_sum", "1 + 2"), ("letter_counting", "e")])
def test_what_cannot_be_worked_out_is_an_error(kind: str, question: str) -> None:
    with pytest.raises(ValueError, match=r"^(kind|question): "):
        worked_out(kind, question)


@pytest.mark.parametrize(
    ("code", "stdout", "exit_code"),
    [
        ("85-7360", "-7275\n", 0),
        ("-3*(4+5)", "-27\n", 0),
        ("9**9", "", 1),
        ("open('x')", "", 1),
        ("x=1", "", 1),
        ("'a'*3", "", 1),
        ("*".join(["9" * 20] * 2), "", 1),
    ],
)
async def test_the_arithmetic_sandbox_runs_nothing_else(code: str, stdout: str, exit_code: int) -> None:
    result = await ArithmeticSandbox().run_python(printing(code), 1.0)
    assert (result.stdout, result.exit_code) == (stdout, exit_code)


def test_made_up_names_are_not_real_ones() -> None:
    corpus = made_up_corpus(random.Random(1))
    made_up = {question.function for question in corpus.questions}
    assert len(made_up) > 100
    assert not made_up & {question.function for question in shipped_corpus().questions}
    assert all(len(corpus.search(name)[0]) <= MAX_LINE_CHARS for name in made_up)
    assert made_up == {question.function for question in made_up_corpus(random.Random(1)).questions}


def strategy(demonstration: Demonstration) -> str:
    calls = [message for message in demonstration.messages if message.get("tool_calls")]
    if calls:
        function = calls[0]["tool_calls"][0]["function"]  # type: ignore[index]
        question = str(demonstration.messages[1]["content"])
        return "good" if f'in "{function["arguments"].get("query")}"' in question else "call"
    return "good" if demonstration.messages[-1].get("reasoning_content") else "guess"


async def test_first_only_good_ones_then_the_mix() -> None:
    known = environments()
    demonstrator = Demonstrator({name: known[name] for name in ("reasoning", "tool", "qa")}, random.Random(3))
    for domain in ("reasoning", "tool", "qa"):
        good = [strategy(await demonstrator.draw(domain, mixed=False)) for _ in range(40)]
        assert set(good) == ({"call"} if domain == "tool" else {"good"})
    qa = Counter([strategy(await demonstrator.draw("qa", mixed=True)) for _ in range(300)])
    assert qa["good"] / 300 == pytest.approx(0.30, abs=0.09)
    assert qa["call"] / 300 == pytest.approx(0.25, abs=0.09)
    reasoning = Counter([strategy(await demonstrator.draw("reasoning", mixed=True)) for _ in range(300)])
    assert reasoning["good"] / 300 == pytest.approx(0.35, abs=0.09)


async def test_good_ones_are_right_and_held_nothing_back() -> None:
    known = environments()
    demonstrator = Demonstrator({name: known[name] for name in ("reasoning", "tool", "qa")}, random.Random(4))
    held_out = {
        json.dumps(known[name].messages(known[name].task("heldout", index))[1]["content"])
        for name in ("reasoning", "tool", "qa")
        for index in range(300)
    }
    for domain in ("reasoning", "tool", "qa"):
        for _ in range(60):
            shown = await demonstrator.draw(domain, mixed=False)
            assert json.dumps(shown.messages[1]["content"]) not in held_out
            if domain == "tool":
                left, operation, right = str(shown.messages[1]["content"])[8:-1].split()
                wanted = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[operation](int(left), int(right))
                assert shown.messages[-1]["content"] == str(wanted)


async def test_loss_falls_on_the_models_own_tokens_only() -> None:
    tokenizer = train_tokenizer()
    demonstrator = Demonstrator({"tool": environments()["tool"]}, random.Random(5))
    conversation = ConversationTokeniser(tokenizer).tokenised(await demonstrator.draw("tool", mixed=False))
    own = tokenizer.text([one for one, is_own in zip(conversation.ids, conversation.own, strict=True) if is_own])
    assert own.startswith('</think><tool_call>{"name":"python","arguments":{"code":"')
    assert own.count("<|im_end|>") == 2 and own.endswith("<|im_end|>")
    assert "What is" not in own and "<tool_response>" not in own


def test_own_tokens_by_hand() -> None:
    opening, turn_end = [1, 2], 9
    ids = [1, 5, 9, 1, 2, 7, 8, 9, 3, 2, 1, 2, 9]
    mine = [False, False, False, False, False, True, True, True, False, False, False, False, True]
    assert own_tokens(ids, opening, turn_end) == mine
