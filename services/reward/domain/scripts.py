"""Writing systems of letters, by Unicode's names. It refuses to tell languages apart, and needs no model."""

import re
import unicodedata
from collections import Counter
from functools import cache

JAPANESE = {"HIRAGANA", "KATAKANA"}
LATIN_LETTER = re.compile("[A-Za-z]")
"""The letters of ASCII."""


def scripts_of(text: str) -> frozenset[str]:
    """The writing systems that a text uses."""
    if text.isascii():
        return frozenset({"LATIN"} if LATIN_LETTER.search(text) else ())
    return frozenset(script_of(character) for character in set(text) if character.isalpha())


def letters_by_script(text: str) -> Counter[str]:
    """Letters of a text by writing system."""
    found: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            found[script_of(character)] += count
    return found


@cache
def script_of(letter: str) -> str:
    """The writing system of a letter; Japanese syllables count as the characters that they stand beside."""
    first = unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]
    return "CJK" if first in JAPANESE else first
