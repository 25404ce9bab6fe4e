"""The Python tool: what is sent to the sandbox, what comes back, and what the verifier takes."""

from dataclasses import dataclass, field

import pytest

from services.environments.interface import SandboxResult, Task, ToolFailure
from services.environments.tool import Sum, ToolEnvironment, draw_sum, printing

TASK = Task("tool", "t", "train", b'{"answer":"-7275","expression":"85 - 7360"}')


@dataclass
class Recorded:
    """A sandbox that gives one prepared result and remembers what it was asked to run."""

    result: SandboxResult
    programs: list[str] = field(default_factory=list)

    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        self.programs.append(code)
        assert timeout_s == 5.0
        return self.result


async def test_an_expression_is_printed() -> None:
    sandbox = Recorded(SandboxResult("-7275\n", "", 0, timed_out=False))
    assert await ToolEnvironment().call_tool(TASK, "python", {"code": "85-7360"}, sandbox) == "-7275"
    assert sandbox.programs == ["print(85 - 7360)"]


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("x=3\nx*2", "x = 3\nprint(x * 2)"),
        ("print(1)", "print(1)"),
        ("import math", "import math"),
        ("", ""),
    ],
)
def test_only_a_last_expression_is_printed(code: str, program: str) -> None:
    assert printing(code) == program


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("shell", {"code": "1"}, "error: no tool shell; allowed: python"),
        ("python", {}, "error: python takes code, not nothing"),
        ("python", {"query": "1"}, "error: python takes code, not query"),
        ("python", {"code": "1", "a": 2}, "error: python takes code, not a, code"),
        ("python", {"code": 7}, "error: code must be a text that is not empty"),
        ("python", {"code": " "}, "error: code must be a text that is not empty"),
        ("python", {"code": "3+"}, "error: SyntaxError: invalid syntax"),
        ("python", {"code": "1\x00"}, "error: SyntaxError: source code string cannot contain null bytes"),
        ("python", {"code": "(" * 3_000}, "error: "),
        ("python", {"code": "1" * 4_001}, "error: code has 4001 characters, at most 4000 allowed"),
    ],
)
async def test_a_bad_call_is_a_message_for_the_model(name: str, arguments: dict[str, object], said: str) -> None:
    sandbox = Recorded(SandboxResult("", "", 0, timed_out=False))
    with pytest.raises(ToolFailure) as failure:
        await ToolEnvironment().call_tool(TASK, name, arguments, sandbox)
    assert str(failure.value).startswith(said)
    assert sandbox.programs == []


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            SandboxResult("", "Traceback\n  x\nZeroDivisionError: division by zero\n", 1, False),
            "error: ZeroDivisionError",
        ),
        (SandboxResult("", "", 137, False), "error: exit code 137"),
        (SandboxResult("", "", 0, True), "error: still running after 5 s"),
    ],
)
async def test_a_program_that_fails_is_a_message_for_the_model(result: SandboxResult, said: str) -> None:
    with pytest.raises(ToolFailure, match=said):
        await ToolEnvironment().call_tool(TASK, "python", {"code": "1/0"}, Recorded(result))


async def test_output_is_bounded_and_never_empty() -> None:
    long = Recorded(SandboxResult("x" * 5_000, "", 0, False))
    assert len(await ToolEnvironment().call_tool(TASK, "python", {"code": "1"}, long)) == 400
    silent = Recorded(SandboxResult("", "", 0, False))
    assert await ToolEnvironment().call_tool(TASK, "python", {"code": "x=1"}, silent) == "nothing was printed"


@pytest.mark.parametrize(
    ("given", "score"),
    [("-7275", 1.0), ("-7,275", 1.0), ("<think>a</think> -7275 ", 1.0), ("7275", 0.0), ("-7275.5", 0.0), ("", 0.0)],
)
def test_verdict(given: str, score: float) -> None:
    assert ToolEnvironment().verify(TASK, given, []).score == score


def test_sums() -> None:
    assert [Sum(85, op, 7360).value for op in "+-*"] == [7445, -7275, 625600]
    assert Sum(6, "*", 4).content_key == Sum(4, "*", 6).content_key
    assert Sum(6, "-", 4).content_key != Sum(4, "-", 6).content_key
    drawn = [draw_sum(seed) for seed in range(300)]
    assert {one.operation for one in drawn} == set("+-*")
    assert all(10 <= one.left <= 9999 and 10 <= one.right <= 9999 for one in drawn)
    assert all(one.right <= 99 for one in drawn if one.operation == "*")
