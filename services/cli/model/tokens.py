"""Conversations to token ids by the chat template, and which of these ids the model itself must say.

It refuses a conversation that is longer than the model.
"""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from services.cli.model.demonstrations import Demonstration
from services.cli.model.tokenizer import MAX_MODEL_TOKENS


@dataclass(frozen=True, slots=True)
class TokenisedConversation:
    """`ids` of the whole conversation; `own[i]`: whether the model says ids[i]."""

    domain: str
    ids: tuple[int, ...]
    own: tuple[bool, ...]


def tokenised(demonstration: Demonstration, tokenizer: PreTrainedTokenizerFast) -> TokenisedConversation:
    """A demonstration as ids. Raises ValueError beyond 512 tokens."""
    text = tokenizer.apply_chat_template(
        list(demonstration.messages), tools=list(demonstration.tools) or None, tokenize=False
    )
    ids = tokenizer.encode(str(text), add_special_tokens=False)
    if len(ids) > MAX_MODEL_TOKENS:
        raise ValueError(f"conversation: {len(ids)} tokens given, at most {MAX_MODEL_TOKENS} allowed")
    opening = tokenizer.encode("<|im_start|>assistant\n<think>", add_special_tokens=False)
    return TokenisedConversation(
        demonstration.domain, tuple(ids), tuple(own_tokens(ids, opening, tokenizer.eos_token_id))
    )


def own_tokens(ids: list[int], opening: list[int], turn_end: int) -> list[bool]:
    """True from behind each opening up to and with the turn's end."""
    own = [False] * len(ids)
    speaking = False
    for place, token in enumerate(ids):
        own[place] = speaking
        if token == turn_end:
            speaking = False
        elif ids[max(0, place + 1 - len(opening)) : place + 1] == opening:
            speaking = True
    return own
