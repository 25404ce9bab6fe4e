"""Language mixing: letters of writing systems that nothing before the turn used.

It looks at scripts, not languages, so it needs no model; it refuses to punish a script that the prompt or a tool used.
"""

import unicodedata
from collections import Counter

from services.reward.domain.turns import Turn

TOLERATED_SHARE = 0.05
JAPANESE = {"HIRAGANA", "KATAKANA"}


def penalty(turn: Turn) -> float:
    """-(share of letters in foreign scripts) where that is above one twentieth; else 0."""
    used = scripts(turn.text)
    letters = sum(used.values())
    if not letters:
        return 0.0
    known = set(scripts(turn.before)) or {used.most_common(1)[0][0]}
    share = sum(count for script, count in used.items() if script not in known) / letters
    return -share if share > TOLERATED_SHARE else 0.0


def scripts(text: str) -> Counter[str]:
    """Letters of a text by writing system."""
    return Counter(_script(character) for character in text if character.isalpha())


def _script(letter: str) -> str:
    first = unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]
    return "CJK" if first in JAPANESE else first
