"""Reasoning in one turn: sums of two terms, greatest common divisors and letter counts, from reasoning-gym.

Tasks and verifiers are the package's. It refuses partial credit: see `verify`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import reasoning_gym  # pyright: ignore[reportMissingTypeStubs]

from services.environments.interface import (
    InvalidTask,
    Message,
    Sandbox,
    Task,
    ToolFailure,
    ToolSpec,
    Verdict,
    last_words,
    numbered_task,
    unpack,
)
from services.environments.split import draw_in_split

SYSTEM = "Reply with the answer only."
KINDS: Mapping[str, Mapping[str, int]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "gcd": {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 20},
    "letter_counting": {"min_words": 2, "max_words": 4},
}


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One entry of the package, with the key that tells contents apart."""

    kind: str
    question: str
    answer: str
    content_key: str


class ReasoningEnvironment:
    """Three kinds of puzzle, drawn evenly."""

    name = "reasoning"

    def __init__(self) -> None:
        self._datasets: Mapping[str, Any] = {
            kind: reasoning_gym.create_dataset(kind, seed=0, size=1, **limits) for kind, limits in KINDS.items()
        }

    def task(self, split: str, index: int) -> Task:
        """Task number `index`: kind, question and answer. Raises InvalidTask."""
        puzzle = draw_in_split(split, index, self._draw)
        fields = {"kind": puzzle.kind, "question": puzzle.question, "answer": puzzle.answer}
        return numbered_task(self.name, split, index, fields)

    def messages(self, task: Task) -> list[Message]:
        """A system line and the package's question."""
        question = unpack(task, self.name, ("question",))["question"]
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]

    def tools(self, task: Task) -> list[ToolSpec]:
        """None."""
        return []

    def max_turns(self, task: Task) -> int:
        """One."""
        return 1

    async def call_tool(self, task: Task, name: str, arguments: Mapping[str, object], sandbox: Sandbox) -> str:
        """Refuse: there are no tools here."""
        raise ToolFailure(f"error: no tool {name}; there are no tools in this task")

    def verify(self, task: Task, answer: str, transcript: Sequence[Message]) -> Verdict:
        """1.0 where the package's verifier is fully content, else 0.0."""
        fields = unpack(task, self.name, ("kind", "question", "answer"))
        given = last_words(answer)
        if fields["kind"] not in self._datasets:
            kinds = ", ".join(sorted(self._datasets))
            raise InvalidTask(f"payload of task {task.task_id}: kind: given {fields['kind']!r}; allowed {kinds}")
        score = float(self._datasets[fields["kind"]].score_answer(given, fields))
        # The package gives part of the score to any answer that contains the right one: "12" for "2". That would
        # reward longer guesses.
        solved = score >= 1.0
        return Verdict(1.0 if solved else 0.0, f"{fields['kind']}: {'right' if solved else 'wrong'}: {given[:40]!r}")

    def _draw(self, seed: int) -> Puzzle:
        kind = random.Random(f"reasoning|{seed}").choice(sorted(KINDS))
        entry = cast("Mapping[str, Any]", self._datasets[kind][seed])
        return Puzzle(kind, entry["question"], entry["answer"], content_key(kind, entry))


def content_key(kind: str, entry: Mapping[str, Any]) -> str:
    """What a puzzle asks, so that 6 + 4 and 4 + 6, or gcd(6, 4) and gcd(4, 6), fall on the same side."""
    metadata = cast("Mapping[str, Any]", entry["metadata"])
    if kind == "gcd":
        return f"gcd {sorted(metadata['numbers'])}"
    if kind == "chain_sum":
        left, sign, right = str(metadata["expression"]).split()
        return f"sum {sorted((left, right))}" if sign == "+" else f"difference {left} {right}"
    return str(entry["question"])
