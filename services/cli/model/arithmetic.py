"""A sandbox for arithmetic alone, for demonstrations and the warm-up's own look at held-out tasks.

It evaluates `print(<expression>)` over whole numbers by walking the parsed text, and refuses every other program:
nothing that a model wrote is ever executed here.
"""

import ast
import operator
from collections.abc import Callable

from services.environments.interface import SandboxResult

OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
MAX_MAGNITUDE = 10**30


class ArithmeticSandbox:
    """Serves `run_python` for sums, differences and products."""

    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        """What `print(expression)` would print; exit code 1 for anything else."""
        try:
            return SandboxResult(f"{printed(ast.parse(code))}\n", "", 0, timed_out=False)
        except (SyntaxError, ValueError, RecursionError) as error:
            return SandboxResult("", f"{type(error).__name__}: {error}\n", 1, timed_out=False)


def printed(program: ast.Module) -> int:
    """The value of the expression in a program that is one print. Raises ValueError."""
    match program.body:
        case [ast.Expr(ast.Call(ast.Name("print"), [expression], []))]:
            return value_of(expression)
        case _:
            raise ValueError("only print(expression) runs here")


def value_of(expression: ast.expr) -> int:
    """An arithmetic expression's value. Raises ValueError."""
    match expression:
        case ast.Constant(int(value)):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            return -value_of(operand)
        case ast.BinOp(left, operation, right) if type(operation) in OPERATIONS:
            value = OPERATIONS[type(operation)](value_of(left), value_of(right))
            if abs(value) > MAX_MAGNITUDE:
                raise ValueError("number too large")
            return value
        case _:
            raise ValueError("only whole numbers, +, - and * run here")
