"""Branches of an episode laid out as rows of tokens, each sampled token trained in exactly one row.

A node that several branches share is trained in the first of them and is context in the others, so an episode has one
vote however many branches it has. It refuses log-probabilities that aren't finite, naming the token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from services.contract.trajectory import Node, sampled_nodes, training_branches
from services.trainer.domain.episodes import EpisodePlan, is_trained
from services.trainer.domain.refusal import StepRefused

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Row:
    """One branch. Arrays have one entry a token; where `trained_T` is False the others hold neutral values.

    `weights_T`: what a token's loss is multiplied by; `batch_rows` sets it. `turns_T`: the turn that sampled it.
    """

    episode_id: str
    group_id: str
    domain: str
    token_ids_T: NDArray[np.int64]
    trained_T: NDArray[np.bool_]
    advantages_T: NDArray[np.float64]
    logprobs_T: NDArray[np.float64]
    temperatures_T: NDArray[np.float64]
    top_ps_T: NDArray[np.float64]
    policy_steps_T: NDArray[np.int64]
    turns_T: NDArray[np.int64]
    weights_T: NDArray[np.float64]

    @property
    def length(self) -> int:
        """Tokens of the branch."""
        return len(self.token_ids_T)

    @property
    def trained_tokens(self) -> int:
        """Tokens that are trained in this row."""
        return int(self.trained_T.sum())


@dataclass(frozen=True, slots=True)
class RowRules:
    """How a batch's rows are weighed and masked. `policy_step`: the step whose weights are trained.

    `per_group`: a mean over each prompt's group, then over groups; else one mean over all tokens of the step.
    `max_token_staleness_steps`: tokens sampled more steps ago than this are context; 0: none are.
    """

    policy_step: int
    per_group: bool = False
    max_token_staleness_steps: int = 0


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows with something to train, and how many tokens of each episode were too old for it."""

    rows: tuple[Row, ...]
    masked_tokens: dict[str, int]


def batch_rows(plans: Sequence[EpisodePlan], rules: RowRules) -> BatchRows:
    """Rows of a whole optimiser step, all ranks' together, with their weights. Raises StepRefused."""
    rows: list[Row] = []
    masked: dict[str, int] = {}
    for plan in plans:
        for row in rows_of(plan):
            fresh = _without_old(row, rules)
            old = row.trained_tokens - fresh.trained_tokens
            if old:
                masked[row.episode_id] = masked.get(row.episode_id, 0) + old
            if fresh.trained_tokens:
                rows.append(fresh)
    return BatchRows(tuple(_weigh(rows, rules)), masked)


def _without_old(row: Row, rules: RowRules) -> Row:
    if rules.max_token_staleness_steps <= 0:
        return row
    ages_T = rules.policy_step - row.policy_steps_T
    return replace(row, trained_T=row.trained_T & (ages_T <= rules.max_token_staleness_steps))


def _weigh(rows: Sequence[Row], rules: RowRules) -> list[Row]:
    """Weights that sum to 1 over the step: 1/N, or 1/(groups * tokens of the group)."""
    tokens: dict[str, int] = {}
    for row in rows:
        key = row.group_id if rules.per_group else ""
        tokens[key] = tokens.get(key, 0) + row.trained_tokens
    return [
        replace(
            row,
            weights_T=row.trained_T / (len(tokens) * float(tokens[row.group_id if rules.per_group else ""])),
        )
        for row in rows
    ]


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
        rows.append(_row(plan, [nodes[i] for i in branch], set(trained), advantages))
    return rows


def _row(plan: EpisodePlan, nodes: Sequence[Node], trained: set[int], advantages: dict[int, float]) -> Row:
    length = sum(len(node.token_ids) for node in nodes)
    row = Row(
        plan.episode.episode_id,
        plan.group_id,
        plan.episode.domain,
        np.zeros(length, np.int64),
        np.zeros(length, np.bool_),
        np.zeros(length, np.float64),
        np.zeros(length, np.float64),
        np.ones(length, np.float64),
        np.ones(length, np.float64),
        np.full(length, NO_STEP, np.int64),
        np.full(length, NO_STEP, np.int64),
        np.zeros(length, np.float64),
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
    row.turns_T[part] = node.turn
    for span in node.spans:
        row.policy_steps_T[start + span.start : start + span.end] = span.policy_step
    bad = np.flatnonzero(~np.isfinite(row.logprobs_T[part]))
    name = f"episode {row.episode_id}: turn {node.turn}"
    if len(bad):
        raise StepRefused(
            f"{name}: token {start + int(bad[0])} of its branch: the engine's log-probability is not finite"
        )
    if not np.isfinite(advantage):
        raise StepRefused(f"{name}: token {start} of its branch: advantage is not finite")
