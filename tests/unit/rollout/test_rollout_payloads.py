"""Payloads by msgspec are the SDK's payloads: each reads what the other wrote, whatever stands in them."""

import dataclasses
import json
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from services.rollout.adapters import payloads
from services.rollout.domain import episode

OURS = payloads.data_converter().payload_converter
THEIRS = DataConverter.default.payload_converter
SPOKEN = [
    kind
    for kind in vars(episode).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind is not episode.Tally
]
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    float: st.floats(allow_nan=False, allow_infinity=False),
    int: st.integers(-(2**40), 2**40),
    bool: st.booleans(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in PLAIN:
        return PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return st.builds(hint, **{name: values(own) for name, own in get_type_hints(hint).items()})
    of = get_args(hint)
    if type(None) in of:
        return st.none() | values(of[0])
    return st.lists(values(of[0]), max_size=3)


@pytest.mark.parametrize("kind", SPOKEN, ids=lambda kind: kind.__name__)
def test_each_reads_what_the_other_wrote(kind: Any) -> None:
    @given(values(kind))
    def check(value: Any) -> None:
        (ours,), (theirs,) = OURS.to_payloads([value]), THEIRS.to_payloads([value])
        assert json.loads(ours.data) == json.loads(theirs.data)
        assert dict(ours.metadata) == dict(theirs.metadata)
        for payload in (ours, theirs):
            assert OURS.from_payloads([payload], [kind]) == THEIRS.from_payloads([payload], [kind]) == [value]

    check()


def test_half_a_surrogate_pair_goes_through() -> None:
    value = episode.Text("half \ud800")
    payload = OURS.to_payloads([value])
    assert payload == THEIRS.to_payloads([value])
    assert OURS.from_payloads(payload, [episode.Text]) == [value]


class Colour(IntEnum):
    RED = 2


@pytest.mark.parametrize(
    "value", [None, 1, "text", b"bytes", [1, "a", None], {"a": {"b": 1.5}}, True, 2**80, Colour.RED]
)
def test_everything_else_is_as_it_was(value: Any) -> None:
    ours, theirs = OURS.to_payloads([value]), THEIRS.to_payloads([value])
    assert OURS.from_payloads(ours) == THEIRS.from_payloads(theirs) == OURS.from_payloads(theirs)


def test_a_history_from_before_a_field_is_read() -> None:
    old = Payload(
        metadata={"encoding": b"json/plain"}, data=b'{"agent":"a","style":"program","max_turns":1,"agent_timeout_s":5}'
    )
    (plan,) = OURS.from_payloads([old], [episode.EpisodePlan])
    assert plan == episode.EpisodePlan("a", "program", 1, 5.0) and plan.written is False


def test_what_is_malformed_is_refused_as_the_sdk_does() -> None:
    broken = Payload(metadata={"encoding": b"json/plain"}, data=b'{"agent":')
    for converter in (OURS, THEIRS):
        with pytest.raises(RuntimeError, match="could not be converted"):
            converter.from_payloads([broken], [episode.EpisodePlan])
    hint: Any = Sequence[episode.Text]
    assert OURS.from_payloads(THEIRS.to_payloads([[episode.Text("a")]]), [hint]) == [[episode.Text("a")]]
