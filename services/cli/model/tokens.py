"""Conversations to token ids by the chat template, and which of these ids the model itself must say.

It refuses a conversation that is longer than the model.
"""

from dataclasses import dataclass

from services.cli.model.demonstrations import Demonstration
from services.cli.model.tokenizer import MAX_MODEL_TOKENS, ChatTokenizer

REPLY_OPENING = "<|im_start|>assistant\n<think>"


@dataclass(frozen=True, slots=True)
class TokenisedConversation:
    """`ids` of the whole conversation; `own[i]`: whether the model says ids[i]."""

    domain: str
    ids: tuple[int, ...]
    own: tuple[bool, ...]


class ConversationTokeniser:
    """Turns demonstrations into ids with one tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._opening = tokenizer.ids(REPLY_OPENING)

    def tokenised(self, demonstration: Demonstration) -> TokenisedConversation:
        """A demonstration as ids. Raises ValueError beyond 512 tokens."""
        ids = self._tokenizer.rendered(demonstration.messages, demonstration.tools, reply_opened=False)
        if len(ids) > MAX_MODEL_TOKENS:
            raise ValueError(f"conversation: {len(ids)} tokens given, at most {MAX_MODEL_TOKENS} allowed")
        own = own_tokens(ids, self._opening, self._tokenizer.turn_end)
        return TokenisedConversation(demonstration.domain, tuple(ids), tuple(own))


def own_tokens(ids: list[int], opening: list[int], turn_end: int) -> list[bool]:
    """True from behind each opening up to and with the turn's end."""
    own = [False] * len(ids)
    speaking = False
    for place, token in enumerate(ids):
        own[place] = speaking
        if token == turn_end:
            speaking = False
        elif token == opening[-1] and ids[max(0, place + 1 - len(opening)) : place + 1] == opening:
            speaking = True
    return own
