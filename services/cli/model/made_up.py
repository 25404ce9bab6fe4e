"""Corpora of signatures that exist nowhere.

A small model that sees the same thousand names again and again learns the list; one that never sees a name twice has to
learn to copy. It refuses to use a real name.
"""

import random
import string

from services.environments.corpus import Corpus

CORPUS_FUNCTIONS = 120
MAX_LINE_CHARS = 72
LETTERS = "etaoinsrhldcumfpgwybvkxjqz"
LETTER_WEIGHTS = tuple(range(len(LETTERS) + 4, 4, -1))
TEXTS = ("", " ", "C", "r", "w", "rb", "utf-8", "strict", "raise", "ascii", "xml", "auto", "-", "/")


def made_up_corpus(rng: random.Random) -> Corpus:
    """120 signatures with names drawn letter by letter."""
    names = {function_name(rng) for _ in range(CORPUS_FUNCTIONS)}
    return Corpus(signature(name, rng) for name in sorted(names))


def function_name(rng: random.Random) -> str:
    """Two to four parts, such as `zeltor.Mia.read_xt`."""
    # Most are short, since short ones teach the same at less cost; some are as long as real ones.
    longest = 10 if rng.random() < 0.2 else 5
    parts = [word(rng, 2, longest) for _ in range(rng.choice((1, 1, 1, 2)))]
    if rng.random() < 0.2:
        parts.append(word(rng, 2, longest).capitalize())
    shapes = (
        word(rng, 2, longest),
        f"{word(rng, 1, longest)}_{word(rng, 1, longest)}",
        word(rng, 2, longest).capitalize(),
    )
    last = rng.choice(shapes)
    return ".".join([*parts, last])


def signature(name: str, rng: random.Random) -> str:
    """One to six parameters, at least one of them with a default."""
    parts = [parameter_name(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6)))]
    first_default = rng.randrange(len(parts))
    shown = [part if place < first_default else f"{part}={default(rng)}" for place, part in enumerate(parts)]
    if rng.random() < 0.15:
        shown.insert(first_default, "*")
    while len(f"{name}({','.join(shown)})") > MAX_LINE_CHARS and len(shown) > 1:
        del shown[0]
    return f"{name}({','.join(shown)})"


def parameter_name(rng: random.Random) -> str:
    """One letter, a word, or two words."""
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(string.ascii_lowercase)
    return word(rng, 2, rng.choice((5, 9))) if kind < 0.75 else f"{word(rng, 2, 6)}_{word(rng, 1, 6)}"


def default(rng: random.Random) -> str:
    """A literal, of the kinds that real signatures have."""
    kind = rng.random()
    if kind < 0.12:
        return "None"
    if kind < 0.3:
        return rng.choice(("True", "False"))
    if kind < 0.55:
        return str(rng.choice((0, 1, -1, 2, rng.randint(-9, 20), rng.randint(10, 9999))))
    if kind < 0.75:
        return rng.choice(("0.0", "1.0", "0.5", f"{rng.randint(0, 99) / 10}", f"1e-{rng.randint(3, 12):02d}"))
    return repr(rng.choice(TEXTS) if kind < 0.9 else word(rng, 1, 7))


def word(rng: random.Random, shortest: int, longest: int) -> str:
    """Letters at roughly their usual frequency, now and then with a digit at the end."""
    letters = rng.choices(LETTERS, LETTER_WEIGHTS, k=rng.randint(shortest, longest))
    return "".join(letters) + (rng.choice(string.digits) if rng.random() < 0.08 else "")
