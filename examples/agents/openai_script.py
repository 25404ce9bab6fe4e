"""An agent that knows nothing of Forge RL: the `openai` SDK, a base URL and a key from the environment.

It reads its task (messages, tools) from the file that FORGERL_TASK_FILE names, may call a calculator of its own, and
prints its answer. Run it against any OpenAI-compatible server.
"""

import ast
import json
import operator
import os
import sys
from pathlib import Path

from openai import OpenAI

MAX_TURNS = 3
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def calculate(node):
    """The value of a parsed arithmetic expression; anything else raises ValueError."""
    if isinstance(node, ast.Expression):
        return calculate(node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](calculate(node.left), calculate(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](calculate(node.operand))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        return calculate(*node.args)
    raise ValueError("only arithmetic")


def answer_call(call):
    """The one tool this agent has: arithmetic, whatever the tool is called."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
        (expression,) = arguments.values()
        return str(calculate(ast.parse(str(expression).strip(), mode="eval")))
    except (ValueError, TypeError, SyntaxError, ArithmeticError, AttributeError, RecursionError) as error:
        return f"error: {error}"


def main():
    """Talk until the model answers without asking for a tool."""
    task = json.loads(Path(os.environ["FORGERL_TASK_FILE"]).read_text())
    client = OpenAI()
    messages = list(task["messages"])
    options = {"tools": task["tools"]} if task.get("tools") else {}
    for _ in range(MAX_TURNS):
        completion = client.chat.completions.create(model="policy", messages=messages, **options)
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print(json.dumps({"answer": message.content or ""}))
            return 0
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer_call(call)})
    print(json.dumps({"answer": ""}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
