"""Arrow bytes of a trajectory, its branches, and refusal of rows that contradict each other."""

from dataclasses import replace

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
