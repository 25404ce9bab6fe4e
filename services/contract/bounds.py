"""Bounds of a number in a run file, as one line that says what was given and what is allowed. It refuses to raise."""

import math

UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
FINITE = 1.7976931348623157e308
"""The upper bound of a number that is multiplied or divided by: infinity would make others no numbers."""

LONGEST_S = 1e8
"""Three years: dates are made from these seconds, and a date has an end."""
MOST_ITEMS = 65_536
"""What a client, a queue or an evaluation holds in memory one by one."""


def within(field: str, given: float, low: float, high: float, *, open_low: bool = False) -> list[str]:
    """The problem of a value outside [low, high], or of (low, high] with `open_low`; empty when it is inside."""
    above = given > low if open_low else given >= low
    if above and given <= high:
        return []
    bound = "above" if open_low else "at least"
    if high in (math.inf, FINITE, UINT32_MAX):
        allowed = f"{bound} {low:g}" + (", finite" if given == math.inf else "")
    else:
        allowed = f"{'above ' if open_low else ''}{low:g}..{high:g}"
    return [f"{field}: given {given:g}; allowed {allowed}"]
