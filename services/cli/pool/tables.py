"""The pool as Arrow tables, one schema each. It refuses to guess: what didn't happen is null."""

# pyarrow ships no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportUnknownParameterType=false

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from services.cli.pool.index import EpisodeRow, PoolIndex
from services.contract.trajectory import Node, Trajectory, sampled_nodes

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")
_KEY = (("run_id", _TEXT), ("episode_id", _TEXT))

EPISODES = pa.schema(
    [
        *_KEY,
        *(("group_id", _TEXT), ("domain", _TEXT), ("kind", _TEXT), ("pinned_step", _INT), ("state", _TEXT)),
        *(("reason", _TEXT), ("submitted_at", _TIME), ("admitted_at", _TIME), ("finished_at", _TIME)),
        *(("sealed_at", _TIME), ("scored_at", _TIME), ("outcome", _TEXT), ("agent_wall_s", _REAL)),
        *(("failure_class", _TEXT), ("performance", _REAL), ("sampled_tokens", _INT), ("first_policy_step", _INT)),
        *(("position", _INT), ("batch", _INT), ("total_reward", _REAL), ("mean_advantage", _REAL)),
        *(("trained_tokens", _INT), ("loss_weight", _REAL), ("masked_tokens", _INT), ("staleness_steps", _INT)),
        *(("trajectory_uri", _TEXT), ("trajectory_sha256", _TEXT), ("pruned_at", _TIME)),
    ]
)
TURNS = pa.schema(
    [
        *_KEY,
        *(("turn", _INT), ("node_id", _INT), ("parent_id", _INT), ("message_json", _TEXT), ("tokens", _INT)),
        *(("mean_logprob", _REAL), ("first_policy_step", _INT), ("last_policy_step", _INT), ("temperature", _REAL)),
        *(("top_p", _REAL), ("finish_reason", _TEXT), ("infra", _FLAG), ("advantage", _REAL)),
    ]
)
TOKENS = pa.schema(
    [
        *_KEY,
        *(("node_id", _INT), ("turn", _INT), ("index", _INT), ("token_id", _INT), ("sampled", _FLAG)),
        *(("logprob", _REAL), ("policy_step", _INT), ("advantage", _REAL)),
    ]
)
REWARDS = pa.schema([*_KEY, ("turn", _INT), ("term", _TEXT), ("value", _REAL)])
ADVANTAGES = pa.schema([*_KEY, ("batch", _INT), ("turn", _INT), ("advantage", _REAL)])
BATCHES = pa.schema(
    [
        *(("run_id", _TEXT), ("batch", _INT), ("position", _INT), ("group_id", _TEXT), ("domain", _TEXT)),
        *(("episode_id", _TEXT), ("trained", _FLAG), ("why_not", _TEXT), ("total_reward", _REAL)),
        *(("mean_advantage", _REAL), ("trained_tokens", _INT), ("loss_weight", _REAL)),
    ]
)
SCHEMAS = {
    "episodes": EPISODES,
    "turns": TURNS,
    "tokens": TOKENS,
    "rewards": REWARDS,
    "advantages": ADVANTAGES,
    "batches": BATCHES,
}
FROM_TRAJECTORIES = ("turns", "tokens")
"""Tables for which every trajectory has to be read; the others come from the index."""


def index_table(name: str, index: PoolIndex) -> pa.Table:
    """episodes, rewards, advantages or batches of a run."""
    makers = {"episodes": _episodes, "rewards": _rewards, "advantages": _advantages, "batches": _batches}
    return pa.Table.from_pylist(list(makers[name](index.episodes.values())), schema=SCHEMAS[name])


def turn_table(row: EpisodeRow, trajectory: Trajectory) -> pa.Table:
    """A row a sampled node of one episode."""
    advantages = _by_node(row, trajectory)
    rows = [
        {
            **_key(row),
            "turn": node.turn,
            "node_id": node.node_id,
            "parent_id": node.parent_id,
            "message_json": node.message_json,
            "tokens": len(node.token_ids),
            "mean_logprob": float(np.mean(node.logprobs)) if node.logprobs else None,
            "first_policy_step": min((span.policy_step for span in node.spans), default=None),
            "last_policy_step": max((span.policy_step for span in node.spans), default=None),
            "temperature": node.temperature,
            "top_p": node.top_p,
            "finish_reason": node.finish_reason,
            "infra": node.infra,
            "advantage": advantages.get(node.node_id),
        }
        for node in sampled_nodes(trajectory)
    ]
    return pa.Table.from_pylist(rows, schema=TURNS)


def token_table(row: EpisodeRow, trajectory: Trajectory) -> pa.Table:
    """A row a token of one episode's tree, parents before children."""
    advantages = _by_node(row, trajectory)
    parts = [_node_tokens(row, node, advantages.get(node.node_id)) for node in trajectory.nodes if node.token_ids]
    return pa.concat_tables(parts) if parts else TOKENS.empty_table()


def _node_tokens(row: EpisodeRow, node: Node, advantage: float | None) -> pa.Table:
    count = len(node.token_ids)
    steps: list[int | None] = [None] * count
    for span in node.spans:
        steps[span.start : span.end] = [span.policy_step] * (span.end - span.start)
    columns: list[Any] = [
        [row.run_id] * count,
        [row.episode_id] * count,
        [node.node_id] * count,
        [node.turn if node.sampled else None] * count,
        range(count),
        node.token_ids,
        [node.sampled] * count,
        node.logprobs if node.sampled else [None] * count,
        steps,
        [advantage] * count,
    ]
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, TOKENS.types, strict=True)]
    return pa.table(arrays, schema=TOKENS)


def _by_node(row: EpisodeRow, trajectory: Trajectory) -> dict[int, float]:
    """Advantage of each sampled node; empty where none were computed."""
    nodes = sampled_nodes(trajectory)
    return {node.node_id: value for node, value in zip(nodes, row.advantages, strict=False)} if row.advantages else {}


def _key(row: EpisodeRow) -> dict[str, Any]:
    return {"run_id": row.run_id, "episode_id": row.episode_id}


def _episodes(rows: Iterable[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        cells = {name: getattr(row, name) for name in EPISODES.names if hasattr(row, name)}
        for moment in ("submitted", "admitted", "finished", "sealed", "scored", "pruned"):
            at_s = getattr(row, f"{moment}_at_s")
            cells[f"{moment}_at"] = None if at_s is None else int(at_s * 1e6)
        if row.trajectory is not None:
            cells |= {"trajectory_uri": row.trajectory.uri, "trajectory_sha256": row.trajectory.sha256}
        yield cells


def _rewards(rows: Iterable[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.score is None:
            continue
        yield {**_key(row), "turn": None, "term": "performance", "value": row.score.performance}
        for term in row.score.process:
            yield {**_key(row), "turn": term.turn, "term": term.rule, "value": term.value}


def _advantages(rows: Iterable[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for turn, value in enumerate(row.advantages):
            yield {**_key(row), "batch": row.batch, "turn": turn, "advantage": value}


def _batches(rows: Iterable[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in sorted((row for row in rows if row.batch is not None), key=lambda row: (row.batch, row.position)):
        cells = {name: getattr(row, name) for name in BATCHES.names if hasattr(row, name)}
        yield {**cells, "trained": row.state == "trained", "why_not": row.reason}
