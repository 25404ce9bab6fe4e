"""Branches of an episode laid out as rows of tokens, each sampled token trained in exactly one row.

A node that several branches share is trained in the first of them and is context in the others, so an episode has one
vote however many branches it has. It refuses log-probabilities that aren't finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.contract.trajectory import Node, branches, sampled_nodes, training_branches
from services.trainer.domain.episodes import EpisodePlan, is_trained
from services.trainer.domain.refusal import StepRefused

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Row:
    """One branch. Arrays have one entry a token; where `trained_T` is False the others hold neutral values."""

    episode_id: str
    token_ids_T: NDArray[np.int64]
    trained_T: NDArray[np.bool_]
    advantages_T: NDArray[np.float64]
    logprobs_T: NDArray[np.float64]
    temperatures_T: NDArray[np.float64]
    top_ps_T: NDArray[np.float64]
    policy_steps_T: NDArray[np.int64]

    @property
    def length(self) -> int:
        """Tokens of the branch."""
        return len(self.token_ids_T)

    @property
    def trained_tokens(self) -> int:
        """Tokens that are trained in this row."""
        return int(self.trained_T.sum())


@dataclass(frozen=True, slots=True)
class MergeCount:
    """Tokens laid out branch by branch, and distinct tokens of the trees: what merging prefixes would save."""

    branch_tokens: int
    tree_tokens: int

    @property
    def factor(self) -> float:
        """Branch tokens per tree token, >= 1."""
        return self.branch_tokens / self.tree_tokens if self.tree_tokens else 1.0


def rows_of(plan: EpisodePlan) -> list[Row]:
    """The rows of one episode; empty when nothing of it is trained. Raises StepRefused."""
    if not plan.trained:
        return []
    trajectory = plan.episode.trajectory
    nodes = {node.node_id: node for node in trajectory.nodes}
    advantages = {
        node.node_id: advantage for node, advantage in zip(sampled_nodes(trajectory), plan.turn_advantages, strict=True)
    }
    taken: set[int] = set()
    rows: list[Row] = []
    for branch in training_branches(trajectory):
        trained = [i for i in branch if i not in taken and is_trained(nodes[i])]
        if not trained:
            continue
        taken.update(trained)
        rows.append(_row(plan.episode.episode_id, [nodes[i] for i in branch], set(trained), advantages))
    return rows


def merge_count(plans: Sequence[EpisodePlan]) -> MergeCount:
    """Over all trained episodes of a batch."""
    laid_out = distinct = 0
    for plan in plans:
        if plan.trained:
            sizes = {node.node_id: len(node.token_ids) for node in plan.episode.trajectory.nodes}
            laid_out += sum(sizes[i] for branch in branches(plan.episode.trajectory) for i in branch)
            distinct += sum(sizes.values())
    return MergeCount(laid_out, distinct)


def _row(episode_id: str, nodes: Sequence[Node], trained: set[int], advantages: dict[int, float]) -> Row:
    length = sum(len(node.token_ids) for node in nodes)
    row = Row(
        episode_id,
        np.zeros(length, np.int64),
        np.zeros(length, np.bool_),
        np.zeros(length, np.float64),
        np.zeros(length, np.float64),
        np.ones(length, np.float64),
        np.ones(length, np.float64),
        np.full(length, NO_STEP, np.int64),
    )
    start = 0
    for node in nodes:
        end = start + len(node.token_ids)
        row.token_ids_T[start:end] = node.token_ids
        if node.node_id in trained:
            _fill(row, node, start, advantages[node.node_id])
        start = end
    # The very first token has nothing before it that could predict it.
    row.trained_T[:1] = False
    return row


def _fill(row: Row, node: Node, start: int, advantage: float) -> None:
    part = slice(start, start + len(node.token_ids))
    row.trained_T[part] = True
    row.advantages_T[part] = advantage
    row.logprobs_T[part] = node.logprobs
    row.temperatures_T[part] = node.temperature
    row.top_ps_T[part] = node.top_p if node.top_p > 0 else 1.0
    for span in node.spans:
        row.policy_steps_T[start + span.start : start + span.end] = span.policy_step
    if not (np.isfinite(row.logprobs_T[part]).all() and np.isfinite(advantage)):
        raise StepRefused(f"episode {row.episode_id}: turn {node.turn}: log-probability or advantage is not finite")
