"""Keys by which a black box's calls are known again."""

from services.rollout.inside.keys import CallKeys
from services.rollout.inside.wire import Request


def call(body: bytes = b"{}", **headers: str) -> Request:
    return Request("POST", "/v1/chat/completions", [(k.replace("_", "-"), v) for k, v in headers.items()], body)


def test_equal_calls_without_a_retry_header_are_two():
    keys = CallKeys()
    first, second = keys.key_of(call()), keys.key_of(call(x_stainless_retry_count="0"))
    assert first.endswith("-1") and second.endswith("-2") and first[:24] == second[:24]


def test_an_sdks_retry_has_the_key_of_the_call_before():
    keys = CallKeys()
    keys.key_of(call(b"other"))
    first = keys.key_of(call())
    assert keys.key_of(call(x_stainless_retry_count="1")) == first
    assert keys.key_of(call(b"other", x_stainless_retry_count="2")).endswith("-1")


def test_a_retry_of_an_unknown_call_is_its_first():
    assert CallKeys().key_of(call(x_stainless_retry_count="1")).endswith("-1")


def test_other_content_has_another_key():
    keys = CallKeys()
    assert keys.key_of(call(b"a"))[:24] != keys.key_of(call(b"b"))[:24]


def test_a_clients_own_key_stands():
    assert CallKeys().key_of(call(idempotency_key="mine")) == "mine"
