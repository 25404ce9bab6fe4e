"""From a message tree to the trajectory that everybody else reads.

It refuses to drop turns: lost attempts stay, marked infra.
"""

from dataclasses import asdict, dataclass

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1 import gateway_pb2

from services.contract import trajectory as contract
from services.gateway.domain.messages import to_json
from services.gateway.domain.tree import MessageTree, TreeNode


@dataclass(frozen=True, slots=True)
class SealFigures:
    """Counts of a sealed trajectory, in nodes, turns, branches and tokens."""

    node_count: int
    turn_count: int
    branch_count: int
    sampled_tokens: int
    tree_tokens: int
    branch_tokens: int
    first_policy_step: int
    last_policy_step: int


def to_trajectory(tree: MessageTree, episode_id: str, run_id: str) -> contract.Trajectory:
    """All nodes, parents first, sampled ones in the order of sampling."""
    turn = 0
    nodes: list[contract.Node] = []
    for node in tree.nodes:
        nodes.append(_node(node, turn, tree.is_infra(node)))
        turn += 1 if node.sample else 0
    return contract.Trajectory(episode_id, run_id, tuple(nodes))


def figures(trajectory: contract.Trajectory) -> SealFigures:
    """The counts that `TrajectorySealed` carries."""
    sampled = contract.sampled_nodes(trajectory)
    # Offline data may be of no policy of the run (-1): then it counts as of the first.
    steps = [max(0, span.policy_step) for node in sampled for span in node.spans]
    return SealFigures(
        node_count=len(trajectory.nodes),
        turn_count=len(sampled),
        branch_count=len(contract.branches(trajectory)),
        sampled_tokens=sum(len(node.token_ids) for node in sampled),
        tree_tokens=contract.tree_tokens(trajectory),
        branch_tokens=contract.branch_tokens(trajectory),
        first_policy_step=min(steps, default=0),
        last_policy_step=max(steps, default=0),
    )


def seal_of(trajectory: contract.Trajectory, blob: BlobRef) -> gateway_pb2.TrajectorySealed:
    """The event that announces a trajectory which is in the blob store."""
    return gateway_pb2.TrajectorySealed(
        episode_id=trajectory.episode_id, run_id=trajectory.run_id, trajectory=blob, **asdict(figures(trajectory))
    )


def _node(node: TreeNode, turn: int, infra: bool) -> contract.Node:
    text = to_json(node.message)
    if node.sample is None or node.mark is None:
        return contract.Node(
            node.node_id,
            node.parent_id,
            "context",
            contract.NO_TURN,
            node.message.role,
            text,
            node.token_ids,
        )
    spans = tuple(contract.Span(s.start, s.end, s.policy_step, s.policy_digest) for s in node.sample.spans)
    return contract.Node(
        node_id=node.node_id,
        parent_id=node.parent_id,
        kind="sampled",
        turn=turn,
        role=node.message.role,
        message_json=text,
        token_ids=node.token_ids,
        logprobs=node.sample.logprobs,
        spans=spans,
        temperature=node.sample.temperature,
        top_p=node.sample.top_p,
        finish_reason=node.sample.finish_reason,
        infra=infra,
        call_id=node.mark.call_id,
    )
