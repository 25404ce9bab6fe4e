"""The recorded demo runs that the tree load test reads."""

from loadtests.tree.recorded import packed, recorded_run, recorded_step, unpacked
from services.contract.trajectory import Node, Trajectory, training_branches

TREE = Trajectory(
    "e",
    "r",
    (
        Node(0, -1, "context", -1, "user", "{}", (5, 6, 7)),
        Node(1, 0, "sampled", 0, "assistant", "{}", (8,), (-0.5,)),
        Node(2, 0, "sampled", 1, "assistant", "{}", (9, 10), (-0.5, -0.1)),
        Node(3, 2, "context", -1, "tool", "{}", ()),
    ),
)


def test_a_packed_tree_has_the_same_branches_and_ids():
    again, other = unpacked(packed([TREE, TREE]))
    for tree in (again, other):
        assert training_branches(tree) == training_branches(TREE) == [[0, 1], [0, 2]]
        assert [list(node.token_ids) for node in tree.nodes] == [[5, 6, 7], [8], [9, 10], []]
        assert [node.trainable for node in tree.nodes] == [False, True, True, False]


def test_the_recorded_run_is_what_the_demo_trained():
    run, step = recorded_run(0), recorded_step(0)
    # The README's table of seed 3: 2,560 episodes in 40 steps, 58,616 tokens trained.
    assert sum(int(sample.trained_T.sum()) for sample in run.chains) == 58_616
    assert sum(int(sample.trained_T.sum()) for sample in run.requests) == 58_616
    assert len(run.chains) == 2_560 <= len(run.requests)
    assert len(step.chains) < len(step.requests) < 200
