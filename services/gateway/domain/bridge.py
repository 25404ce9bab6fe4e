"""The token bridge: which ids a request adds to a chain whose sampled ids stay as they are.

It refuses to guess: when the prefix can't be proven the answer is None, and the caller opens a new branch.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chain:
    """Ids up to and including the last sampled turn; `ended`: that turn's last id is its turn-end id."""

    token_ids: Sequence[int]
    ended: bool


def starts_with(token_ids: Sequence[int], prefix: Sequence[int]) -> bool:
    """Whether the ids begin with the prefix."""
    return len(token_ids) >= len(prefix) and list(token_ids[: len(prefix)]) == list(prefix)


def closing_ids(renders: Sequence[Sequence[int]]) -> list[int]:
    """What the template puts after an assistant's text: the ids at the end that all renders share.

    The renders differ in the assistant's last character, so no content can be among the shared ids.
    """
    shortest = min(len(render) for render in renders)
    shared = 0
    while shared < shortest and len({render[-1 - shared] for render in renders}) == 1:
        shared += 1
    return list(renders[0][len(renders[0]) - shared :])


def suffix(chain: Chain, full: Sequence[int], history: Sequence[int], turn_end: int) -> list[int] | None:
    """Ids to append to the chain so that it becomes the prompt of the full conversation.

    `full` is the render of the whole request, `history` that of the messages up to and including the last sampled turn,
    without generation prompt. Proof: the turn-end id occurs as often in the history as in the chain, so it numbers the
    same turns in both; in `full` the ids that follow the same occurrence begin with what closes the history.
    """
    length = len(chain.token_ids)
    if len(full) > length and starts_with(full, chain.token_ids) and (chain.ended or full[length] == turn_end):
        return list(full[length:])
    ends = [index for index, token in enumerate(history) if token == turn_end]
    expected = sum(1 for token in chain.token_ids if token == turn_end) + (0 if chain.ended else 1)
    if not ends or len(ends) != expected:
        return None
    closing = list(history[ends[-1] :])
    in_full = [index for index, token in enumerate(full) if token == turn_end]
    if len(in_full) < expected:
        return None
    position = in_full[expected - 1]
    if list(full[position : position + len(closing)]) != closing:
        return None
    return list(full[position + 1 :] if chain.ended else full[position:])
