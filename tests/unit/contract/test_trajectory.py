"""Arrow bytes of a trajectory, its branches, and refusal of rows that contradict each other."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from services.contract.trajectory import (
    MalformedTrajectory,
    Node,
    Span,
    Trajectory,
    branch_tokens,
    branches,
    decode,
    encode,
    sampled_nodes,
    training_branches,
    tree_tokens,
    validate,
    view,
    view_messages,
)


def context(node_id: int, parent_id: int, ids: tuple[int, ...]) -> Node:
    return Node(node_id, parent_id, "context", -1, "user", '{"role":"user"}', ids)


def sampled(node_id: int, parent_id: int, turn: int, ids: tuple[int, ...], *, infra: bool = False) -> Node:
    return Node(
        node_id,
        parent_id,
        "sampled",
        turn,
        "assistant",
        '{"role":"assistant","content":"é"}',
        ids,
        logprobs=tuple(-0.5 * k for k in range(len(ids))),
        spans=(Span(0, 1, 3, "aa"), Span(1, len(ids), 4, "bb")),
        temperature=1.0,
        top_p=0.5,
        finish_reason="stop",
        infra=infra,
        call_id=f"call-{turn}",
    )


# 0 -- 1s -- 2 -- 3s
#       \--- 4 -- 5s -- 6      (6: a tool result that nothing followed)
TREE = Trajectory(
    "ep-1",
    "run-1",
    (
        context(0, -1, (1, 2, 3)),
        sampled(1, 0, 0, (10, 11)),
        context(2, 1, (20,)),
        sampled(3, 2, 1, (30, 31, 32)),
        context(4, 1, (40, 41)),
        sampled(5, 4, 2, (50, 51)),
        context(6, 5, (60,)),
    ),
)


def test_bytes_hold_every_field():
    assert decode(encode(TREE)) == TREE


def test_an_episode_without_calls_is_an_empty_trajectory():
    empty = Trajectory("ep-2", "run-1", ())
    assert decode(encode(empty)) == empty
    assert branches(empty) == []


def test_file_is_plain_arrow_with_one_row_a_node():
    table = ipc.open_file(encode(TREE)).read_all()
    assert table.num_rows == 7
    assert table.column("token_ids").to_pylist()[3] == [30, 31, 32]
    assert table.schema.metadata[b"episode_id"] == b"ep-1"


def test_branches_run_from_root_to_leaf():
    assert branches(TREE) == [[0, 1, 2, 3], [0, 1, 4, 5, 6]]


def test_training_branches_end_in_a_sample():
    assert training_branches(TREE) == [[0, 1, 2, 3], [0, 1, 4, 5]]


def test_training_branches_leave_out_a_lost_attempt():
    lost = replace(TREE, nodes=(*TREE.nodes[:5], sampled(5, 4, 2, (50, 51), infra=True), TREE.nodes[6]))
    assert training_branches(lost) == [[0, 1, 2, 3]]


def test_a_sample_above_a_lost_attempt_is_still_trained():
    nodes = (context(0, -1, (1,)), sampled(1, 0, 0, (10, 11)), sampled(2, 1, 1, (20, 21), infra=True))
    assert training_branches(Trajectory("e", "r", nodes)) == [[0, 1]]


def test_token_counts_of_tree_and_branches():
    # tree 3+2+1+3+2+2+1 = 14; branches (3+2+1+3) + (3+2+2+2... 3+2+2+2+1 = 10) = 19
    assert tree_tokens(TREE) == 14
    assert branch_tokens(TREE) == 19


def test_sampled_nodes_come_in_order_of_sampling():
    assert [node.turn for node in sampled_nodes(TREE)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (replace(TREE.nodes[3], parent_id=9), "node 3: parent_id 9"),
        (replace(TREE.nodes[3], node_id=1), "node 1: node_id"),
        (replace(TREE.nodes[3], turn=5), "node 3: turn: given 5; allowed 1"),
        (replace(TREE.nodes[3], logprobs=(0.0,)), "node 3: 1 logprobs for 3 ids"),
        (replace(TREE.nodes[3], spans=(Span(0, 2, 1, "a"),)), "node 3: spans end at 2 of 3"),
        (replace(TREE.nodes[3], spans=(Span(1, 3, 1, "a"),)), "node 3: spans: [1, 3)"),
    ],
)
def test_contradictions_name_the_node(node: Node, message: str):
    broken = replace(TREE, nodes=(*TREE.nodes[:3], node, *TREE.nodes[4:]))
    with pytest.raises(MalformedTrajectory) as caught:
        validate(broken)
    assert message in str(caught.value)


def test_other_bytes_are_refused():
    with pytest.raises(MalformedTrajectory):
        decode(b"not arrow")


def plain(trajectory: Trajectory) -> Trajectory:
    """The same with tuples in the place of views."""
    nodes = (replace(n, token_ids=tuple(n.token_ids), logprobs=tuple(n.logprobs)) for n in trajectory.nodes)
    return replace(trajectory, nodes=tuple(nodes))


def rewritten(column: str, rows: list[Any], kind: Any = None) -> bytes:
    """TREE's file with other values in one column, as somebody else might write it."""
    table = ipc.open_file(encode(TREE)).read_all()
    at = table.schema.names.index(column)
    table = table.set_column(
        at, pa.field(column, kind or table.schema.field(at).type), [pa.array(rows, kind or table.schema.field(at).type)]
    )
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_view_holds_what_decoding_holds_and_is_written_to_the_same_bytes():
    data = encode(TREE)
    seen = view(data)
    assert all(isinstance(node.token_ids, memoryview) and isinstance(node.logprobs, memoryview) for node in seen.nodes)
    assert plain(seen) == decode(data) == TREE
    assert encode(seen) == data
    assert seen == view(data)
    assert view(encode(Trajectory("e", "r", ()))).nodes == ()


def test_a_view_of_messages_lacks_how_they_were_sampled_and_nothing_else():
    seen = plain(view_messages(encode(TREE)))
    left_out = {"logprobs": (), "spans": (), "temperature": 0.0, "top_p": 0.0, "call_id": ""}
    assert seen.nodes == tuple(replace(node, **left_out) for node in TREE.nodes)
    assert {field.name for field in fields(Node)} > set(left_out)


READERS = (decode, view, view_messages)
SPAN = {"start": 0, "end": 2, "policy_step": 3, "policy_digest": "aa"}


@pytest.mark.parametrize(
    ("data", "message", "readers"),
    [
        (rewritten("parent_id", [-1, 0, 1, 9, 1, 4, 5]), "node 3: parent_id 9", READERS),
        (rewritten("node_id", [0, 1, 2, 1, 4, 5, 6]), "node 1: node_id", READERS),
        (rewritten("turn", [-1, 0, -1, 2, -1, 1, -1]), "node 3: turn: given 2; allowed 1", READERS),
        (rewritten("turn", [0, 0, -1, 1, -1, 2, -1]), "node 0: context has no turn", READERS),
        (rewritten("kind", ["context", "said", *["context"] * 5]), "node 1: kind: given 'said'", READERS),
        (rewritten("message_json", ["{}"] * 6 + [None]), "column message_json: 1 values are missing", READERS),
        (rewritten("token_ids", [[1]] * 6 + [None]), "column token_ids: 1 values are missing", READERS),
        (rewritten("token_ids", [[1, None]] * 7), "column token_ids: 7 values are missing", READERS),
        (rewritten("token_ids", [[1]] * 7, pa.list_(pa.int64())), "column token_ids: given list", READERS),
        (rewritten("logprobs", [[-1.0]] * 7, pa.list_(pa.float64())), "column logprobs: given list", READERS),
        (rewritten("token_ids", [[1]] * 7), "node 1: 2 logprobs for 1 ids", (decode, view)),
        (rewritten("logprobs", [[-1.0]] * 7), "node 0: context has no turn, logprobs or spans", (decode, view)),
        (rewritten("spans", [[], [{**SPAN, "end": 1}], *[[]] * 5]), "node 1: spans end at 1 of 2", (decode, view)),
        (rewritten("spans", [[], [{**SPAN, "start": 1}], *[[]] * 5]), "node 1: spans: [1, 2)", (decode, view)),
        (rewritten("spans", [[], [{**SPAN, "end": None}], *[[]] * 5]), "column spans: 1 values", (decode, view)),
        (rewritten("message_json", [b"\xff"] * 7, pa.binary()), "column message_json: given binary", READERS),
    ],
)
def test_bytes_that_contradict_themselves_are_refused_by_every_reader(
    data: bytes, message: str, readers: tuple[Callable[[bytes], Trajectory], ...]
):
    for reader in readers:
        with pytest.raises(MalformedTrajectory) as caught:
            reader(data)
        assert message in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_cut_short_or_without_a_column_is_refused(reader: Callable[[bytes], Trajectory]):
    data = encode(TREE)
    for broken in (b"not arrow", data[: len(data) // 2], b""):
        with pytest.raises(MalformedTrajectory):
            reader(broken)
    table = ipc.open_file(data).read_all().drop_columns(["role"])
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(MalformedTrajectory, match="columns: missing role"):
        reader(sink.getvalue().to_pybytes())


def test_text_that_is_no_utf8_is_refused():
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    table = ipc.open_file(encode(replace(TREE, nodes=TREE.nodes[:1]))).read_all()
    table = table.set_column(table.schema.names.index("message_json"), "message_json", [text])
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(MalformedTrajectory, match="UTF8"):
        view(sink.getvalue().to_pybytes())
