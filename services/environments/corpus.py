"""Signatures as a searchable corpus, and the questions that can be asked about them.

It reads text that it is given, or the file that ships with the package. It refuses a line that is no signature.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

# Beyond this many questions with one and the same answer, that answer would be worth guessing.
MAX_QUESTIONS_PER_DEFAULT = 120
FOUND_AT_MOST = 2
WORD = re.compile(r"[A-Za-z0-9]+")
LINE = re.compile(r"([A-Za-z_][\w.]*)\((.+)\)")


@dataclass(frozen=True, slots=True)
class Question:
    """Ask for the default of `parameter` in `function`."""

    function: str
    parameter: str
    default: str

    @property
    def content_key(self) -> str:
        """The function's last name: os.walk and its twin in another module must not stand on both sides."""
        return self.function.rpartition(".")[2]


class Corpus:
    """Signatures, one a line, found by name."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            found = LINE.fullmatch(line)
            if not found:
                raise ValueError(f"line {number} of the corpus is no signature: {line!r}")
            self._lines[found.group(1)] = line
        self._words = {name: words(name) for name in self._lines}
        self.questions = tuple(questions(self._lines.values()))

    def search(self, query: str) -> list[str]:
        """At most two signatures: the one of that name; else those ending in it; else those sharing the most words."""
        name = query.strip()
        if name in self._lines:
            return [self._lines[name]]
        ending = [line for known, line in self._lines.items() if known.endswith(f".{name}")]
        if ending:
            return ending[:FOUND_AT_MOST]
        wanted = words(name)
        shared = {known: len(wanted & own) for known, own in self._words.items()}
        best = sorted((known for known, count in shared.items() if count), key=lambda known: (-shared[known], known))
        return [self._lines[known] for known in best[:FOUND_AT_MOST]]


def words(name: str) -> frozenset[str]:
    """The words of a dotted name, in lower case."""
    return frozenset(word.lower() for word in WORD.findall(name))


def questions(lines: Iterable[str]) -> Iterable[Question]:
    """Every (function, parameter) with a default, in order, at most 120 with the same default."""
    asked: Counter[str] = Counter()
    # Sorted by the name read backwards: a cap in plain order would only keep the first modules of the alphabet.
    for line in sorted(lines, key=lambda line: line.partition("(")[0][::-1]):
        name, _, rest = line.partition("(")
        for part in rest[:-1].split(","):
            parameter, equals, default = part.partition("=")
            if equals and asked[default] < MAX_QUESTIONS_PER_DEFAULT:
                asked[default] += 1
                yield Question(name, parameter, default)


def shipped_corpus() -> Corpus:
    """The signatures of the standard library and numpy that ship with this package."""
    return Corpus(resources.files("services.environments").joinpath("data/signatures.txt").read_text().splitlines())
