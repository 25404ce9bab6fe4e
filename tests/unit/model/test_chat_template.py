"""The tokenizer and its template: exact text, append-only history, and marks that engines' parsers look for."""

import pytest

from services.cli.model.tokenizer import MAX_VOCABULARY, PHRASES, ChatTokenizer, train_tokenizer
from services.environments.interface import Message
from services.environments.qa import SEARCH
from services.environments.tool import PYTHON

SYSTEM: Message = {"role": "system", "content": "You may run Python. Reply with the number only."}
QUESTION: Message = {"role": "user", "content": "What is 3 + 4?"}


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return train_tokenizer()


def calling(arguments: object) -> Message:
    function = {"name": "python", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def test_a_conversation_as_text(tokenizer: ChatTokenizer) -> None:
    result: Message = {"role": "tool", "tool_call_id": "c", "content": "7"}
    final: Message = {"role": "assistant", "content": "7", "reasoning": "as it says"}
    messages = [SYSTEM, QUESTION, calling({"code": "3+4"}), result, final]
    assert tokenizer.text(tokenizer.rendered(messages, [PYTHON.openai()], reply_opened=True)) == (
        "<|im_start|>system\nYou may run Python. Reply with the number only.\n<tools>\n"
        "python(code: string) Run Python; what it prints, or its last value, comes back.\n</tools><|im_end|>"
        "<|im_start|>user\nWhat is 3 + 4?<|im_end|>"
        '<|im_start|>assistant\n<think></think><tool_call>{"name":"python","arguments":{"code":"3+4"}}</tool_call>'
        "<|im_end|><|im_start|>tool\n<tool_response>7</tool_response><|im_end|>"
        "<|im_start|>assistant\n<think>as it says</think>7<|im_end|><|im_start|>assistant\n<think>"
    )


@pytest.mark.parametrize("arguments", [{"code": "3+4"}, '{"code":"3+4"}'])
def test_arguments_as_object_or_as_text_render_alike(tokenizer: ChatTokenizer, arguments: object) -> None:
    ids = tokenizer.rendered([QUESTION, calling(arguments)], [PYTHON.openai()], reply_opened=False)
    assert '"arguments":{"code":"3+4"}}</tool_call>' in tokenizer.text(ids)


def test_history_only_grows(tokenizer: ChatTokenizer) -> None:
    tools = [PYTHON.openai()]
    result: Message = {"role": "tool", "tool_call_id": "c", "content": "7"}
    prompt = tokenizer.rendered([SYSTEM, QUESTION], tools, reply_opened=True)
    sampled = tokenizer.ids('</think><tool_call>{"name":"python","arguments":{"code":"3+4"}}</tool_call><|im_end|>')
    second = tokenizer.rendered([SYSTEM, QUESTION, calling({"code": "3+4"}), result], tools, reply_opened=True)
    assert second == [*prompt, *sampled, *tokenizer.rendered([result], [], reply_opened=True)]


def test_reasoning_left_in_the_content_is_not_wrapped_again(tokenizer: ChatTokenizer) -> None:
    ids = tokenizer.rendered([{"role": "assistant", "content": "<think>a</think>b"}], [], reply_opened=False)
    assert tokenizer.text(ids) == "<|im_start|>assistant\n<think>a</think>b<|im_end|>"


def test_phrases_are_single_tokens_and_names_and_numbers_are_spelled(tokenizer: ChatTokenizer) -> None:
    assert all(len(tokenizer.ids(phrase)) == 1 for phrase in PHRASES)
    assert [tokenizer.text([one]) for one in tokenizer.ids("os.walk 1907")] == list("os.walk 1907")
    assert len(tokenizer) <= MAX_VOCABULARY


def test_any_text_survives(tokenizer: ChatTokenizer) -> None:
    text = 'What is "é\n\t漢"? {"name":"search"} 12'
    assert tokenizer.text(tokenizer.ids(text)) == text


def test_marks_are_single_tokens_and_only_turn_marks_are_special(tokenizer: ChatTokenizer) -> None:
    marks = (
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<|im_start|>",
    )
    assert all(len(tokenizer.ids(mark)) == 1 for mark in marks)
    assert set(tokenizer.pretrained.all_special_tokens) == {"<|im_end|>", "<|im_start|>", "<|endoftext|>"}
    assert tokenizer.pretrained.eos_token_id == tokenizer.turn_end != tokenizer.padding


def test_prompts_are_short(tokenizer: ChatTokenizer) -> None:
    question: Message = {"role": "user", "content": 'What is the default of "maxsize" in "functools.lru_cache"?'}
    assert len(tokenizer.rendered([question], [SEARCH.openai()], reply_opened=True)) < 120
