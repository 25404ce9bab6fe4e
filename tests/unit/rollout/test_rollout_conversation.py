"""Reading a model's messages."""

import pytest

from services.rollout.domain.conversation import (
    ToolCall,
    assistant_message,
    json_object,
    program_answer,
    tool_calls,
    tool_message,
)


def test_a_message_is_sent_back_without_empty_and_provider_fields():
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "audio": None,
        "reasoning_content": "hm",
        "tool_calls": [],
    }
    assert assistant_message(message) == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def test_calls_keep_their_order_ids_and_arguments():
    function = {"name": "python", "arguments": '{"code": "1+1"}'}
    message = {"tool_calls": [{"id": "a", "function": function}, {"function": {"name": "b", "arguments": "[1]"}}]}
    assert tool_calls(message) == [
        ToolCall("a", "python", {"code": "1+1"}, '{"code": "1+1"}'),
        ToolCall("call-1", "b", None, "[1]"),
    ]


def test_no_calls_where_there_is_only_text_that_looks_like_one():
    assert tool_calls({"content": '<tool_call>{"name":"python"}'}) == []


@pytest.mark.parametrize(
    ("text", "wanted"), [('{"a": 1}', {"a": 1}), ("[1]", None), ("{", None), ("", None), ("3", None)]
)
def test_only_objects_are_arguments(text: str, wanted: object):
    assert json_object(text) == wanted


def test_a_tools_answer_names_its_call():
    call = ToolCall("a", "python", {}, "{}")
    assert tool_message(call, "42") == {"role": "tool", "tool_call_id": "a", "content": "42"}


@pytest.mark.parametrize(
    ("stdout", "wanted"),
    [
        ("thinking\n42\n\n", "42"),
        ('noise\n{"answer": "7"}\n', "7"),
        ('{"answer": 7}\n', '{"answer": 7}'),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_a_programs_answer_is_its_last_line(stdout: str, wanted: str):
    assert program_answer(stdout) == wanted
