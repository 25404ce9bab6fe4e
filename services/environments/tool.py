"""Arithmetic that is hard in the head and easy with a Python tool: two numbers, one operation.

The tool runs Python in the caller's sandbox. It refuses to run anything itself.
"""

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.environments.interface import (
    Message,
    Sandbox,
    Task,
    ToolFailure,
    ToolSpec,
    Verdict,
    last_words,
    numbered_task,
    text_argument,
    unpack,
)
from services.environments.split import draw_in_split

SYSTEM = "You may run Python. Reply with the number only."
PYTHON = ToolSpec(
    name="python",
    description="Run Python; what it prints, or its last value, comes back.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
OPERATIONS = "+-*"
TOOL_TIMEOUT_S = 5.0
MAX_CODE_CHARS = 4_000
MAX_OUTPUT_CHARS = 400


@dataclass(frozen=True, slots=True)
class Sum:
    """Two numbers and what to do with them."""

    left: int
    operation: str
    right: int

    @property
    def content_key(self) -> str:
        """Equal for 6*4 and 4*6, since they ask the same."""
        numbers = (self.left, self.right) if self.operation == "-" else tuple(sorted((self.left, self.right)))
        return f"{numbers[0]}{self.operation}{numbers[1]}"

    @property
    def value(self) -> int:
        """The right answer."""
        if self.operation == "+":
            return self.left + self.right
        return self.left - self.right if self.operation == "-" else self.left * self.right


class ToolEnvironment:
    """Numbers of two to four digits, added, subtracted or multiplied."""

    name = "tool"

    def task(self, split: str, index: int) -> Task:
        """Task number `index`: expression and answer. Raises InvalidTask."""
        drawn = draw_in_split(split, index, draw_sum)
        fields = {"expression": f"{drawn.left} {drawn.operation} {drawn.right}", "answer": str(drawn.value)}
        return numbered_task(self.name, split, index, fields)

    def messages(self, task: Task) -> list[Message]:
        """A system line and the question."""
        expression = unpack(task, self.name, ("expression",))["expression"]
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {expression}?"}]

    def tools(self, task: Task) -> list[ToolSpec]:
        """The Python tool."""
        return [PYTHON]

    def max_turns(self, task: Task) -> int:
        """A call, a second try, and the answer."""
        return 3

    async def call_tool(self, task: Task, name: str, arguments: Mapping[str, object], sandbox: Sandbox) -> str:
        """Run the model's code and give back what it printed. Raises ToolFailure with the program's last error line."""
        if name != PYTHON.name:
            raise ToolFailure(f"error: no tool {name}; allowed: {PYTHON.name}")
        program = printing(text_argument(PYTHON, arguments))
        result = await sandbox.run_python(program, TOOL_TIMEOUT_S)
        if result.timed_out:
            raise ToolFailure(f"error: still running after {TOOL_TIMEOUT_S:g} s")
        if result.exit_code != 0:
            lines = result.stderr.strip().splitlines() or [f"exit code {result.exit_code}"]
            raise ToolFailure(f"error: {lines[-1][:MAX_OUTPUT_CHARS]}")
        return result.stdout.strip()[:MAX_OUTPUT_CHARS] or "nothing was printed"

    def verify(self, task: Task, answer: str, transcript: Sequence[Message]) -> Verdict:
        """1.0 where the answer is the number, in whatever way of writing it, else 0.0."""
        wanted = int(unpack(task, self.name, ("answer",))["answer"])
        given = last_words(answer)
        try:
            solved = int(given.replace(",", "")) == wanted
        except ValueError:
            return Verdict(0.0, f"not a number: {given[:40]!r}")
        return Verdict(1.0 if solved else 0.0, f"{'right' if solved else 'wrong'}: {given[:40]!r}")


def draw_sum(seed: int) -> Sum:
    """A sum drawn from a seed: a product's second number has two digits, so that answers stay within six."""
    rng = random.Random(f"tool|{seed}")
    operation = rng.choice(OPERATIONS)
    digits = (rng.randint(2, 4), 2) if operation == "*" else (rng.randint(2, 4), rng.randint(2, 4))
    left, right = (rng.randrange(10 ** (count - 1), 10**count) for count in digits)
    return Sum(left, operation, right)


def printing(code: str) -> str:
    """`code` as a program that also prints the value of its last expression. Raises ToolFailure if it doesn't parse."""
    if len(code) > MAX_CODE_CHARS:
        raise ToolFailure(f"error: code has {len(code)} characters, at most {MAX_CODE_CHARS} allowed")
    try:
        parsed = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolFailure(f"error: {type(error).__name__}: {str(error)[:MAX_OUTPUT_CHARS]}") from error
    last = parsed.body[-1] if parsed.body else None
    if not isinstance(last, ast.Expr) or is_print(last.value):
        return code
    shown = ast.Expr(ast.Call(ast.Name("print", ast.Load()), [last.value], []))
    return ast.unparse(ast.fix_missing_locations(ast.Module([*parsed.body[:-1], shown], [])))


def is_print(value: ast.expr) -> bool:
    """Whether an expression prints already."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
