"""Language mixing: letters of writing systems that nothing before the turn used.

It looks at scripts, not languages, so it needs no model; it refuses to punish a script that the prompt or a tool used.
"""

from services.reward.domain.scripts import letters_by_script, scripts_of
from services.reward.domain.turns import Turn

TOLERATED_SHARE = 0.05


def penalty(turn: Turn) -> float:
    """-(share of letters in foreign scripts) where that is above one twentieth; else 0."""
    if scripts_of(turn.text) <= turn.scripts_before:
        return 0.0
    used = letters_by_script(turn.text)
    known = turn.scripts_before or {used.most_common(1)[0][0]}
    share = sum(count for script, count in used.items() if script not in known) / used.total()
    return -share if share > TOLERATED_SHARE else 0.0
