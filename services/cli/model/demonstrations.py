"""Demonstrations of mixed quality: the skills are all in them, the strategy is left undecided.

Every conversation is one that its environment would have held: its messages, its tools' real results. It refuses to
use held-out tasks.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.cli.model.arithmetic import ArithmeticSandbox
from services.cli.model.made_up import default as made_up_default
from services.cli.model.made_up import made_up_corpus
from services.cli.model.working_out import worked_out
from services.environments.interface import Environment, Message, Task, ToolFailure
from services.environments.qa import QaEnvironment
from services.environments.split import MAX_TASKS

GOOD_SHARE: Mapping[str, float] = {"reasoning": 0.35, "tool": 0.3, "qa": 0.3}
WRONG_CALL_SHARE: Mapping[str, float] = {"tool": 0.15, "qa": 0.25}
MADE_UP_SHARE = 0.7
QUESTIONS_PER_MADE_UP_CORPUS = 40


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A whole conversation, with the tools that were on offer."""

    domain: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, object], ...]


class Demonstrator:
    """Draws demonstrations, evenly from three environments."""

    def __init__(self, environments: Mapping[str, Environment], rng: random.Random) -> None:
        self._environments = environments
        self._rng = rng
        self._sandbox = ArithmeticSandbox()
        self._made_up = QaEnvironment(made_up_corpus(rng))
        self._made_up_left = QUESTIONS_PER_MADE_UP_CORPUS

    async def draw(self, domain: str, mixed: bool) -> Demonstration:
        """One demonstration of a domain (reasoning, tool or qa): of mixed quality, or a good one."""
        environment = self._environment(domain)
        task = environment.task("train", self._rng.randrange(MAX_TASKS))
        fields: dict[str, str] = json.loads(task.payload)
        luck = self._rng.random() if mixed else 0.0
        if domain == "reasoning":
            replies: list[Message | None] = [self._puzzle_reply(fields, luck)]
        elif domain == "tool":
            replies = self._tool_replies(fields, luck)
        else:
            replies = self._qa_replies(fields, luck)
        messages = await self._held(environment, task, replies)
        return Demonstration(domain, tuple(messages), tuple(tool.openai() for tool in environment.tools(task)))

    def _environment(self, domain: str) -> Environment:
        if domain != "qa" or self._rng.random() >= MADE_UP_SHARE:
            return self._environments[domain]
        if not self._made_up_left:
            self._made_up = QaEnvironment(made_up_corpus(self._rng))
            self._made_up_left = QUESTIONS_PER_MADE_UP_CORPUS
        self._made_up_left -= 1
        return self._made_up

    def _puzzle_reply(self, fields: Mapping[str, str], luck: float) -> Message:
        if luck < GOOD_SHARE["reasoning"]:
            return reply(fields["answer"], reasoning=worked_out(fields["kind"], fields["question"]))
        guesses = {"chain_sum": (-60, 160), "gcd": (1, 10), "letter_counting": (1, 5)}
        return reply(str(self._rng.randint(*guesses[fields["kind"]])))

    def _tool_replies(self, fields: Mapping[str, str], luck: float) -> list[Message | None]:
        left, operation, right = fields["expression"].split()
        guess = reply(str(self._rng.randint(10, 9999)))
        if luck < GOOD_SHARE["tool"]:
            return [call("python", {"code": f"{left}{operation}{right}"}), None]
        if luck < GOOD_SHARE["tool"] + WRONG_CALL_SHARE["tool"]:
            wrong = self._rng.choice([other for other in "+-*" if other != operation])
            return [call("python", {"code": f"{left}{wrong}{right}"}), None]
        return [guess]

    def _qa_replies(self, fields: Mapping[str, str], luck: float) -> list[Message | None]:
        answer = reply(f"{fields['parameter']}={fields['answer']}")
        guess = reply(f"{fields['parameter']}={made_up_default(self._rng)}")
        if luck < GOOD_SHARE["qa"]:
            return [call("search", {"query": fields["function"]}), answer]
        if luck < GOOD_SHARE["qa"] + WRONG_CALL_SHARE["qa"]:
            return [call("search", {"query": fields["parameter"]}), guess]
        return [guess]

    async def _held(self, environment: Environment, task: Task, replies: Sequence[Message | None]) -> list[Message]:
        messages = environment.messages(task)
        for given in replies:
            # None stands for the last tool result, said again.
            said = given if given is not None else reply(str(messages[-1]["content"]))
            messages.append(said)
            messages.extend(await tool_results(environment, task, said, self._sandbox))
        return messages


def reply(content: str, reasoning: str = "") -> Message:
    """A final answer."""
    return {"role": "assistant", "content": content, "reasoning_content": reasoning}


def call(name: str, arguments: Mapping[str, str]) -> Message:
    """A reply that calls one tool."""
    function = {"name": name, "arguments": dict(arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


async def tool_results(
    environment: Environment, task: Task, said: Message, sandbox: ArithmeticSandbox
) -> list[Message]:
    """What the tools say to a reply: one message a call; none where nothing was called."""
    results: list[Message] = []
    for tool_call in said.get("tool_calls") or []:  # type: ignore[union-attr]
        function = tool_call["function"]
        try:
            content = await environment.call_tool(task, function["name"], function["arguments"], sandbox)
        except ToolFailure as failure:
            content = str(failure)
        results.append({"role": "tool", "tool_call_id": tool_call["id"], "content": content})
    return results
