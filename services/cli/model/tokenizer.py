"""The small model's tokenizer: byte-level BPE, trained here on the fixed phrases of templates and tasks.

A phrase is one token (or a few); everything else, names and numbers above all, is spelled sign by sign, so that copying
an unseen name is the same skill as copying a known one. It refuses to learn names: they never reach its training.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from services.environments.interface import Message

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
PADDING = "<|endoftext|>"
# Marks that a reply may hold stay visible when special tokens are skipped, or the engine's parsers would miss them.
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
MAX_VOCABULARY = 768
MAX_MODEL_TOKENS = 512
PHRASES = (
    "system\n",
    "user\n",
    "assistant\n",
    "tool\n",
    "\n<tools>\n",
    "\n</tools>",
    "Reply with the answer only.",
    "You may run Python. Reply with the number only.",
    "python(code: string) Run Python; what it prints, or its last value, comes back.",
    "You may search the documentation. Reply as name=value.",
    "search(query: string) Find signatures by the name of a function.",
    '{"name":"python","arguments":{"code":"',
    '{"name":"search","arguments":{"query":"',
    '"}}',
    "What is ",
    'What is the default of "',
    '" in "',
    '"?',
    "nothing found",
    "State the final answer to the following arithmetic problem: ",
    "Find the Greatest Common Divisor (GCD) of these numbers: ",
    ". Give only the GCD as your final answer.",
    'How many times does the letter "',
    '" appear in the text: "',
)


class ChatTokenizer:
    """Messages to ids and ids to text, with the numbers of the marks that loops need."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.pretrained = tokenizer
        self.turn_end = id_of(tokenizer, TURN_END)
        self.padding = id_of(tokenizer, PADDING)

    def __len__(self) -> int:
        return len(self.pretrained)

    def rendered(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, object]], reply_opened: bool
    ) -> list[int]:
        """The ids of messages; with `reply_opened`, those of the next reply's beginning as well."""
        conversation = cast("list[dict[str, str]]", list(messages))
        offered = cast("list[Any] | None", list(tools) or None)
        text = self.pretrained.apply_chat_template(
            conversation, tools=offered, tokenize=False, add_generation_prompt=reply_opened
        )
        return self.ids(str(text))

    def ids(self, text: str) -> list[int]:
        """A text's ids."""
        return list(self.pretrained.encode(text, add_special_tokens=False))

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, marks included."""
        return str(self.pretrained.decode(list(ids), skip_special_tokens=False))


def id_of(tokenizer: PreTrainedTokenizerFast, mark: str) -> int:
    """The number of one mark."""
    number = tokenizer.convert_tokens_to_ids(mark)
    if not isinstance(number, int):
        raise ValueError(f"mark: {mark!r} is not in this tokenizer")
    return number


def train_tokenizer() -> ChatTokenizer:
    """A tokenizer with the chat template in it; the same on every call."""
    tokenizer = Tokenizer(models.BPE())
    longest_first = sorted(PHRASES, key=len, reverse=True)
    pieces = "|".join(re.escape(phrase).replace("\\\n", r"\n").replace('\\"', '"') for phrase in longest_first)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(f"{pieces}|[\\s\\S]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(text, special=True, normalized=False) for text in (PADDING, TURN_START, TURN_END)]
    marks = [AddedToken(text, special=False, normalized=False) for text in MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=MAX_VOCABULARY - len(MARKS),
        min_frequency=1,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(PHRASES, trainer)
    tokenizer.add_tokens(marks)
    pretrained = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PADDING,
        additional_special_tokens=[TURN_START],
        model_max_length=MAX_MODEL_TOKENS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=chat_template(),
    )
    return ChatTokenizer(pretrained)


def chat_template() -> str:
    """The Jinja text that turns messages and tools into a prompt."""
    return resources.files("services.cli.model").joinpath("chat_template.jinja").read_text()


def save_tokenizer(tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the ordinary Hugging Face files."""
    tokenizer.pretrained.save_pretrained(str(out))
