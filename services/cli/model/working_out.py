"""How a puzzle is worked out in small steps that a small model can take one sign at a time.

It refuses a kind of puzzle that it does not know.
"""

import re

DIVISORS_APART = " "


def worked_out(kind: str, question: str) -> str:
    """The reasoning for one of reasoning-gym's questions."""
    if kind == "gcd":
        return divisors_of_both(question)
    if kind == "chain_sum":
        return columns(question)
    if kind == "letter_counting":
        return letters_counted(question)
    raise ValueError(f"kind: {kind!r} given, allowed: chain_sum, gcd, letter_counting")


def divisors_of_both(question: str) -> str:
    """`12 6 4 3 2 1;18 9 6 3 2 1`: the answer is the first of one list that stands in the other."""
    numbers = re.findall(r"\d+", question)
    lists = [[str(d) for d in range(int(n), 0, -1) if int(n) % d == 0] for n in numbers]
    return ";".join(DIVISORS_APART.join(divisors) for divisors in lists)


def columns(question: str) -> str:
    """`8+3=11,9+9+1=19`: columns from the right, with what is carried or borrowed; a swapped difference after `-`."""
    found = re.search(r"(\d+) ([+-]) (\d+) =", question)
    if not found:
        raise ValueError(f"question: no sum in {question!r}")
    left, sign, right = int(found.group(1)), found.group(2), int(found.group(3))
    swapped = sign == "-" and left < right
    if swapped:
        left, right = right, left
    width = max(len(str(left)), len(str(right)))
    steps: list[str] = []
    carried = 0
    for place in range(width):
        upper, lower = left // 10**place % 10, right // 10**place % 10
        extra = f"{sign}{carried}" if carried else ""
        if sign == "+":
            total = upper + lower + carried
            carried = total // 10
        else:
            borrowed = 1 if upper < lower + carried else 0
            upper += 10 * borrowed
            total = upper - lower - carried
            carried = borrowed
        steps.append(f"{upper}{sign}{lower}{extra}={total}")
    return ("-" if swapped else "") + ",".join(steps)


def letters_counted(question: str) -> str:
    """The text again, with a running count after every hit: `Guten1berg Licen2se`."""
    found = re.search(r'letter "(.)" appear in the text: "(.*)"\?', question, re.DOTALL)
    if not found:
        raise ValueError(f"question: no letter and text in {question!r}")
    letter, text = found.groups()
    count = 0
    shown: list[str] = []
    for sign in text:
        hit = sign.lower() == letter
        count += hit
        shown.append(f"{sign}{count}" if hit else sign)
    return "".join(shown)
