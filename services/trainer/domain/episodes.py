"""What the trainer knows of each episode of a batch, and what it decides to do with it: advantages, or why not.

It refuses to train an episode that is not eligible, one that comes twice, and a group without a baseline.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from services.contract.rewards import (
    Member,
    RewardWeights,
    group_advantages,
    time_base_s,
    token_mean,
    turn_rewards,
)
from services.contract.trajectory import Node, Trajectory, sampled_nodes
from services.trainer.domain.refusal import StepRefused

UNTRAINED = 0.0


@dataclass(frozen=True, slots=True)
class EpisodeInput:
    """One episode of the manifest with its trajectory. `process`: (turn, value) pairs as they were scored."""

    episode_id: str
    domain: str
    trajectory: Trajectory
    performance: float
    process: tuple[tuple[int, float], ...]
    solved: bool
    wall_s: float
    first_policy_step: int
    eligible: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """What is done with an episode. `turn_advantages`: one entry a sampled node, 0 where it isn't trained.

    `group_id`: which of the batch's groups it belongs to.
    """

    episode: EpisodeInput
    trained: bool
    why_not: str
    turn_advantages: tuple[float, ...]
    total_reward: float
    mean_advantage: float
    trained_tokens: int
    group_id: str = ""


def is_trained(node: Node) -> bool:
    """Whether a node's ids are trained: a greedy sample has no probability to raise or lower."""
    return node.trainable and node.temperature > 0 and len(node.token_ids) > 0


def plan_batch(
    groups: Sequence[Sequence[EpisodeInput]], weights: RewardWeights, *, turn_aligned: bool, divided: bool = False
) -> list[EpisodePlan]:
    """Advantages of every group's eligible members, in the manifest's order. Raises StepRefused on a bad number.

    `turn_aligned`, `divided`: see contract.rewards.group_advantages.
    """
    advantages_of = partial(group_advantages, weights=weights, turn_aligned=turn_aligned, divided=divided)
    seen: set[str] = set()
    plans: list[EpisodePlan] = []
    for index, group in enumerate(groups):
        fresh: list[EpisodeInput] = []
        for episode in group:
            if episode.episode_id in seen:
                plans.append(_left_out(episode, "duplicate"))
                continue
            seen.add(episode.episode_id)
            fresh.append(episode)
        plans += [replace(plan, group_id=str(index)) for plan in _plan_group(fresh, weights, advantages_of)]
    return plans


def _plan_group(
    group: Sequence[EpisodeInput],
    weights: RewardWeights,
    advantages_of: Callable[[Sequence[Member]], list[tuple[float, ...]]],
) -> list[EpisodePlan]:
    eligible = [episode for episode in group if episode.eligible]
    if len(eligible) < 2:
        return [_left_out(e, "too_few_eligible" if e.eligible else e.why_not or "not_eligible") for e in group]
    members = [_member(episode) for episode in eligible]
    advantages = advantages_of(members)
    base_s = time_base_s(members, weights)
    by_id = {
        episode.episode_id: _trained(episode, turns, math.fsum(turn_rewards(member, weights, base_s)))
        for episode, member, turns in zip(eligible, members, advantages, strict=True)
    }
    return [by_id.get(e.episode_id) or _left_out(e, e.why_not or "not_eligible") for e in group]


def _member(episode: EpisodeInput) -> Member:
    trained = [node for node in sampled_nodes(episode.trajectory) if is_trained(node)]
    index_of = {node.turn: index for index, node in enumerate(trained)}
    process = tuple((index_of[turn], value) for turn, value in episode.process if turn in index_of)
    numbers = (episode.performance, episode.wall_s, *(value for _, value in process))
    if not all(math.isfinite(number) for number in numbers):
        raise StepRefused(f"episode {episode.episode_id}: reward terms are not finite: {numbers}")
    return Member(episode.performance, process, episode.wall_s, tuple(len(node.token_ids) for node in trained))


def _trained(episode: EpisodeInput, advantages: Sequence[float], total_reward: float) -> EpisodePlan:
    nodes = sampled_nodes(episode.trajectory)
    given = iter(advantages)
    turns = tuple(next(given) if is_trained(node) else UNTRAINED for node in nodes)
    tokens = [len(node.token_ids) if is_trained(node) else 0 for node in nodes]
    why_not = "" if sum(tokens) else "no_sampled_tokens"
    return EpisodePlan(episode, not why_not, why_not, turns, total_reward, token_mean(turns, tokens), sum(tokens))


def _left_out(episode: EpisodeInput, why_not: str) -> EpisodePlan:
    return EpisodePlan(episode, False, why_not, (), 0.0, 0.0, 0)
