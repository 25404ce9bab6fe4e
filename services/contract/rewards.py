"""Reward terms of an episode, their order, reward-to-go, and the baselines of a group (DESIGN 6).

r_t = r_perf (last turn) + alpha * process_t + beta * r_perf * speed (last turn); A_t = sum_{p>=t} gamma^(p-t) r_p - B.
It refuses to judge answers: performance and process values are handed in.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

PROCESS_FLOOR = -1.0
"""An episode's process terms are scaled to sum to no less than this, so that alpha bounds what they can cost."""

SPREAD_FLOOR = 1e-4
"""Added to a standard deviation before anything is divided by it."""


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """Weights of the terms. `gamma` discounts by turns; `time_base_s` 0 means the group's median."""

    alpha: float
    beta: float
    gamma: float
    time_base_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Member:
    """What the reward of one eligible episode is made of.

    `process`: (turn, value <= 0) pairs; `turn_tokens`: trained tokens of each turn, in the order of sampling.
    """

    performance: float
    process: tuple[tuple[int, float], ...]
    wall_s: float
    turn_tokens: tuple[int, ...]


def ordering_problems(weights: RewardWeights, max_turns: int) -> list[str]:
    """Why fast-right > slow-right > wrong could fail under these weights; empty when it can't.

    Right earns at least gamma^(max_turns-1) - alpha as seen from its first turn, wrong at most 0; speed is paid for
    performance only, so it never lifts a wrong episode, and it decreases strictly with time.
    """
    bound = weights.gamma ** (max_turns - 1)
    if weights.alpha < bound:
        return []
    allowed = f"below gamma^(max_turns-1) = {bound:g}, or a right episode could earn less than a wrong one"
    return [f"reward.alpha: given {weights.alpha:g}; allowed {allowed}"]


def speed(wall_s: float, base_s: float) -> float:
    """h(T / T_base) = 1 / (1 + T / T_base): 1 at once, 1/2 at the base, towards 0 when slow."""
    return base_s / (base_s + max(0.0, wall_s)) if base_s > 0 else 0.0


def time_base_s(members: Sequence[Member], weights: RewardWeights) -> float:
    """The task's reference time, or the median over the eligible members."""
    if weights.time_base_s > 0:
        return weights.time_base_s
    return statistics.median(member.wall_s for member in members) if members else 0.0


def turn_rewards(member: Member, weights: RewardWeights, base_s: float) -> tuple[float, ...]:
    """r_t of each turn; empty when the episode has no turn."""
    turns = len(member.turn_tokens)
    if turns == 0:
        return ()
    rewards = [0.0] * turns
    total = sum(value for _, value in member.process)
    scale = PROCESS_FLOOR / total if total < PROCESS_FLOOR else 1.0
    for turn, value in member.process:
        rewards[min(turn, turns - 1)] += weights.alpha * value * scale
    rewards[-1] += member.performance * (1.0 + weights.beta * speed(member.wall_s, base_s))
    return tuple(rewards)


def reward_to_go(rewards: Sequence[float], gamma: float) -> tuple[float, ...]:
    """sum_{p>=t} gamma^(p-t) r_p for each turn t."""
    total = 0.0
    result: list[float] = []
    for reward in reversed(rewards):
        total = reward + gamma * total
        result.append(total)
    return tuple(reversed(result))


def token_mean(values: Sequence[float], turn_tokens: Sequence[int]) -> float:
    """Mean of a per-turn value over the turns' tokens; 0 without tokens."""
    tokens = sum(turn_tokens)
    return math.fsum(v * n for v, n in zip(values, turn_tokens, strict=True)) / tokens if tokens else 0.0


def group_advantages(
    members: Sequence[Member], weights: RewardWeights, *, turn_aligned: bool = False, divided: bool = False
) -> list[tuple[float, ...]]:
    """A_t of each turn of each eligible member of one group; one vote an episode in the baseline.

    Default baseline: leave-one-out mean of the others' token-averaged reward-to-go. `turn_aligned`: leave-one-out mean
    of the others' reward-to-go at the same turn (their last turn's where they were shorter). `divided`: over the
    standard deviation of the members' token-averaged reward-to-go (GRPO, arXiv 2402.03300, section 4.1.2). A group
    with fewer than two members has no baseline: ValueError.
    """
    if len(members) < 2:
        raise ValueError(f"group: given {len(members)} eligible members; allowed at least 2")
    base_s = time_base_s(members, weights)
    to_go = [reward_to_go(turn_rewards(member, weights, base_s), weights.gamma) for member in members]
    means = [token_mean(values, member.turn_tokens) for values, member in zip(to_go, members, strict=True)]
    scale = 1.0 / (statistics.stdev(means) + SPREAD_FLOOR) if divided else 1.0
    baselines = _turn_baselines(to_go) if turn_aligned else _mean_baselines(to_go, means)
    return [
        tuple((value - base) * scale for value, base in zip(mine, bases, strict=True))
        for mine, bases in zip(to_go, baselines, strict=True)
    ]


def _mean_baselines(to_go: Sequence[Sequence[float]], means: Sequence[float]) -> list[list[float]]:
    total, others = math.fsum(means), len(means) - 1
    return [[(total - mean) / others] * len(mine) for mine, mean in zip(to_go, means, strict=True)]


def _turn_baselines(to_go: Sequence[Sequence[float]]) -> list[list[float]]:
    others = len(to_go) - 1
    return [
        [math.fsum(_aligned(other, t) for j, other in enumerate(to_go) if j != i) / others for t in range(len(mine))]
        for i, mine in enumerate(to_go)
    ]


def _aligned(to_go: Sequence[float], turn: int) -> float:
    return to_go[min(turn, len(to_go) - 1)] if to_go else 0.0
