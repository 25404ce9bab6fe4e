"""Canonical form: what counts as the same message when a client sends it back."""

import json

import pytest

from services.gateway.domain.messages import (
    BadMessage,
    Message,
    ToolCall,
    from_json,
    match_key,
    parse_message,
    parse_messages,
    renderable,
    to_json,
)


def assistant(**fields: object) -> str:
    return match_key(parse_message({"role": "assistant", **fields}, "m"))


def call(arguments: str, call_id: str = "c1") -> list[dict[str, object]]:
    return [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}]


@pytest.mark.parametrize(
    "other",
    [
        {"content": "", "tool_calls": call('{"b": 2, "a": 1}')},
        {"tool_calls": call('{"a":1,"b":2}', "another-id")},
        {"content": None, "tool_calls": call('{"a": 1, "b": 2}'), "refusal": None, "annotations": [], "audio": None},
        {"content": [], "tool_calls": call('{"a": 1, "b": 2}'), "reasoning_content": "since"},
        {"content": [{"type": "text", "text": ""}], "tool_calls": call('{"a": 1, "b": 2}'), "function_call": None},
    ],
)
def test_replayed_assistant_messages_match(other: dict[str, object]):
    assert assistant(**other) == assistant(content=None, tool_calls=call('{"a": 1, "b": 2}'))


@pytest.mark.parametrize(
    "other",
    [
        {"content": "x", "tool_calls": call('{"a": 1, "b": 2}')},
        {"tool_calls": call('{"a": 1, "b": 3}')},
        {"tool_calls": call('{"a": [1, 2]}')},
        {"tool_calls": [*call('{"a": 1, "b": 2}'), *call('{"a": 1, "b": 2}')]},
        {},
    ],
)
def test_other_meaning_does_not_match(other: dict[str, object]):
    assert assistant(**other) != assistant(tool_calls=call('{"a": 1, "b": 2}'))


def test_order_in_lists_and_ids_of_tool_results_count():
    assert assistant(tool_calls=call('{"a": [1, 2]}')) != assistant(tool_calls=call('{"a": [2, 1]}'))
    results = [match_key(Message("tool", "3", tool_call_id=name)) for name in ("x", "y")]
    assert results[0] != results[1]


def test_billing_line_is_left_out_of_the_matching_of_system_messages_only():
    lines = [f"x-anthropic-billing-header: n={n}\nbe brief" for n in (1, 2)]
    assert match_key(Message("system", lines[0])) == match_key(Message("system", lines[1]))
    assert match_key(Message("user", lines[0])) != match_key(Message("user", lines[1]))


def test_json_keeps_everything_even_what_no_encoding_can_carry():
    message = Message("assistant", "lone \ud800 surrogate", "why", (ToolCall("c", "f", "not json"),), name="n")
    assert from_json(to_json(message)) == message
    to_json(message).encode("ascii")


def test_arguments_that_are_no_object_are_wrapped_for_rendering_only():
    broken = Message("assistant", "", tool_calls=(ToolCall("c", "f", '{"a": '), ToolCall("d", "g", '{"a": 1}')))
    shown = renderable(broken)
    assert json.loads(shown.tool_calls[0].arguments) == {"arguments": '{"a": '}
    assert shown.tool_calls[1] == broken.tool_calls[1]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "messages: given 'nothing'; allowed a list of at least one message"),
        ("text", "messages: given 'no list'"),
        ([{"role": "wizard"}], r"messages\[0\].role: given 'wizard'; allowed system, developer, user, assistant, tool"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"content\[0\].type: given 'image_url'; allowed 'text'",
        ),
        ([{"role": "user", "content": 3}], "content: given 'int'"),
        ([{"role": "assistant", "tool_calls": [{"id": "x"}]}], r"tool_calls\[0\].function.name: given None"),
        ([3], r"messages\[0\]: given 'int'"),
    ],
)
def test_bad_messages_say_field_given_and_allowed(raw: object, words: str):
    with pytest.raises(BadMessage, match=words):
        parse_messages(raw)
