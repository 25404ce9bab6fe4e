"""Questions about the documentation of Python packages: what is the default of a parameter?

Answers stand in a corpus of signatures that the model may search. It refuses to search anything but that corpus.
"""

import ast
import random
from collections.abc import Mapping, Sequence

from services.environments.corpus import Corpus, Question
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

SYSTEM = "You may search the documentation. Reply as name=value."
SEARCH = ToolSpec(
    name="search",
    description="Find signatures by the name of a function.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
MAX_QUERY_CHARS = 200


class QaEnvironment:
    """Defaults of parameters, over one corpus."""

    name = "qa"

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def task(self, split: str, index: int) -> Task:
        """Task number `index`: function, parameter and default. Raises InvalidTask."""
        drawn = draw_in_split(split, index, self._draw)
        fields = {"function": drawn.function, "parameter": drawn.parameter, "answer": drawn.default}
        return numbered_task(self.name, split, index, fields)

    def messages(self, task: Task) -> list[Message]:
        """A system line and the question."""
        fields = unpack(task, self.name, ("function", "parameter"))
        question = f'What is the default of "{fields["parameter"]}" in "{fields["function"]}"?'
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]

    def tools(self, task: Task) -> list[ToolSpec]:
        """The search."""
        return [SEARCH]

    def max_turns(self, task: Task) -> int:
        """Two searches, and the answer."""
        return 3

    async def call_tool(self, task: Task, name: str, arguments: Mapping[str, object], sandbox: Sandbox) -> str:
        """Search, and give back at most two signatures, one a line. Raises ToolFailure."""
        if name != SEARCH.name:
            raise ToolFailure(f"error: no tool {name}; allowed: {SEARCH.name}")
        query = text_argument(SEARCH, arguments)
        if len(query) > MAX_QUERY_CHARS:
            raise ToolFailure(f"error: query has {len(query)} characters, at most {MAX_QUERY_CHARS} allowed")
        return "\n".join(self._corpus.search(query)) or "nothing found"

    def verify(self, task: Task, answer: str, transcript: Sequence[Message]) -> Verdict:
        """1.0 where the answer is `name=value`, or the value alone, and the value is the default; else 0.0."""
        fields = unpack(task, self.name, ("parameter", "answer"))
        given = last_words(answer)
        solved = same_value(given.removeprefix(f"{fields['parameter']}=").strip(), fields["answer"])
        return Verdict(1.0 if solved else 0.0, f"{'right' if solved else 'wrong'}: {given[:40]!r}")

    def _draw(self, seed: int) -> Question:
        return random.Random(f"qa|{seed}").choice(self._corpus.questions)


def same_value(given: str, wanted: str) -> bool:
    """Whether two texts are the same literal: type and value, in whatever way of writing them."""
    if given == wanted:
        return True
    if len(given) > 2 * len(wanted) + 8:
        return False
    try:
        left, right = ast.literal_eval(given), ast.literal_eval(wanted)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False
    return type(left) is type(right) and left == right
