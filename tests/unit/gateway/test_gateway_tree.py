"""The message tree's fold and match, and what happens to repeats."""

import pytest

from services.gateway.domain.calls import ChatCall, Decision, Kind, LiveMark, Sampling, decide
from services.gateway.domain.generation import Generation, MissingLogprobs
from services.gateway.domain.messages import Message
from services.gateway.domain.tree import ROOT, TRUNCATED, CallMark, Match, MessageTree, Sample, Span, Turn

USER, MORE = Message("user", "go"), Message("user", "more")


def sample(*ids: int, finish: str = "stop") -> Sample:
    return Sample(ids, tuple(-0.5 for _ in ids), (Span(0, len(ids), 0, "d"),), 1.0, 1.0, finish, finish == "stop")


def turn(text: str, parent: int = ROOT, context: tuple[Message, ...] = (USER,), **more) -> Turn:
    mark = CallMark(more.pop("call_id", text), more.pop("key", ""), more.pop("digest", text), more.pop("attempt", 0))
    ids = tuple(range(len(context))) if context else ()
    finish = more.pop("finish", "stop")
    return Turn(mark, parent, "", context, ids, Message("assistant", text), sample(7, 8, finish=finish), **more)


def test_fold_numbers_nodes_and_puts_the_contexts_ids_on_its_last_message():
    tree = MessageTree()
    assert tree.apply(turn("a", context=(Message("system", "s"), USER))) == 2
    assert tree.apply(turn("b", parent=2, context=(MORE,))) == 4
    assert [(n.node_id, n.parent_id, n.token_ids) for n in tree.nodes] == [
        (0, -1, ()),
        (1, 0, (0, 1)),
        (2, 1, (7, 8)),
        (3, 2, (0,)),
        (4, 3, (7, 8)),
    ]
    assert tree.path_ids(4) == [0, 1, 7, 8, 0, 7, 8]


def test_longest_match_wins_and_equal_siblings_give_the_one_nobody_went_on_from():
    tree = MessageTree()
    tree.apply(turn("a"))
    tree.apply(turn("a", parent=0, context=(), call_id="second"))
    answered = Message("assistant", "a")
    assert tree.match("", [USER, answered, MORE], 0) == Match(2, 2)
    tree.apply(turn("b", parent=2, context=(MORE,)))
    assert tree.match("", [USER, answered], 0) == Match(1, 2)
    assert tree.match("", [USER, answered, MORE, Message("assistant", "b"), MORE], 0) == Match(4, 4)
    assert tree.match("", [MORE], 0) == Match(ROOT, 0)
    assert tree.match("other tools", [USER], 0) == Match(ROOT, 0)
    assert tree.match("", [USER, answered], 1) == Match(0, 1)


def test_settle_does_not_add_context_twice():
    tree = MessageTree()
    tree.apply(turn("a"))
    assert (tree.settle(turn("b")).parent_id, tree.settle(turn("b")).context) == (0, ())
    other = turn("c", context=(MORE,))
    assert tree.settle(other) == other


def call(**more) -> ChatCall:
    return ChatCall((USER,), Sampling(), **more)


def live(call_: ChatCall, call_id: str = "l", **more) -> LiveMark:
    fields = {"idempotency_key": "", "attempt": 0, "abandoned": False, **more}
    return LiveMark(call_id, digest=call_.digest, **fields)


def test_equal_calls_are_repeats_only_with_a_sign():
    asked = call()
    running = live(asked)
    assert decide(asked, [running], MessageTree()) == Decision(Kind.FRESH)
    assert decide(call(retry_count=1), [running], MessageTree()) == Decision(Kind.JOIN, call_id="l")
    assert decide(asked, [live(asked, abandoned=True)], MessageTree()) == Decision(Kind.JOIN, call_id="l")
    keyed = call(idempotency_key="k")
    assert decide(keyed, [live(keyed, idempotency_key="k")], MessageTree()) == Decision(Kind.JOIN, call_id="l")
    assert decide(keyed, [live(keyed, idempotency_key="j")], MessageTree()) == Decision(Kind.FRESH)


def test_recorded_calls_are_replayed_or_taken_up_again():
    asked = call()
    tree = MessageTree()
    tree.apply(turn("a", digest=asked.digest, call_id="c"))
    assert decide(asked, [], tree) == Decision(Kind.FRESH)
    assert decide(asked, [], tree, frozenset({"c"})) == Decision(Kind.REPLAY, node_id=1)
    assert decide(call(retry_count=2), [], tree) == Decision(Kind.REPLAY, node_id=1)
    assert decide(call(retry_count=2, attempt=1), [], tree) == Decision(Kind.FRESH)
    cut = MessageTree()
    cut.apply(turn("a", digest=asked.digest, finish=TRUNCATED))
    assert decide(asked, [], cut) == Decision(Kind.CONTINUE, node_id=1)
    taken = live(asked, continues=1)
    assert decide(asked, [taken], cut) == Decision(Kind.FRESH)
    cut.apply(turn("b", parent=1, context=(MORE,)))
    assert decide(call(retry_count=1), [], cut) == Decision(Kind.REPLAY, node_id=1)


def test_a_turn_taken_up_again_replaces_the_truncated_one():
    tree = MessageTree()
    tree.apply(turn("a", finish=TRUNCATED))
    again = turn("ab", context=(), replaces=1)
    assert tree.apply(again) == 1
    assert (len(tree.nodes), tree.nodes[1].message.content) == (2, "ab")


def test_spans_join_for_one_policy_and_part_for_two():
    generation = Generation()
    for ids, step in (((1, 2), 0), ((3,), 0), ((), 1), ((4, 5), 1)):
        generation.extend(ids, [-1.0] * len(ids), step, f"d{step}")
    assert generation.spans == [Span(0, 3, 0, "d0"), Span(3, 5, 1, "d1")]
    with pytest.raises(MissingLogprobs, match="1 log-probabilities for 2 ids"):
        generation.extend([1, 2], [-1.0], 0, "d0")
