"""The numbers of a step, under the names that events, CSV and TensorBoard use.

It refuses to measure: everything is handed in.
"""

from collections.abc import Sequence

from services.trainer.domain.episodes import EpisodePlan
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.rows import MergeCount
from services.trainer.domain.training_yield import Yield


def step_metrics(stats: BatchStats, merged: MergeCount, grad_norm: float) -> dict[str, float]:
    """Everything that the batch and the optimiser say."""
    return {
        "loss": stats.loss,
        "grad_norm": grad_norm,
        "grad_noise": stats.grad_noise,
        "entropy": stats.entropy,
        "ratio_mean": stats.ratio_mean,
        "ratio_max": stats.ratio_max,
        "clip_share": stats.clip_share,
        "mismatch_kl": stats.mismatch_kl,
        "logprob_diff_mean": stats.logprob_diff_mean,
        "logprob_diff_fresh_mean": stats.fresh_diff_mean,
        "logprob_diff_max": stats.fresh_diff_max,
        "fresh_tokens": float(stats.fresh_tokens),
        "tokens": float(stats.tokens),
        "branch_tokens": float(merged.branch_tokens),
        "tree_tokens": float(merged.tree_tokens),
        "merge_factor": merged.factor,
    }


def reward_metrics(plans: Sequence[EpisodePlan]) -> dict[str, float]:
    """Means over the eligible episodes, in all and by domain."""
    eligible = [plan for plan in plans if plan.episode.eligible and plan.why_not != "duplicate"]
    metrics = {
        "reward_mean": _mean([plan.total_reward for plan in eligible if plan.trained]),
        "performance_mean": _mean([plan.episode.performance for plan in eligible]),
        "success": _mean([float(plan.episode.solved) for plan in eligible]),
        "episodes_trained": float(sum(plan.trained for plan in plans)),
        "episodes_left_out": float(sum(not plan.trained for plan in plans)),
        "turns_mean": _mean([float(len(plan.turn_advantages)) for plan in plans if plan.trained]),
        "tokens_per_episode": _mean([float(plan.trained_tokens) for plan in plans if plan.trained]),
        "wall_s_mean": _mean([plan.episode.wall_s for plan in eligible]),
    }
    for domain in sorted({plan.episode.domain for plan in eligible}):
        mine = [plan for plan in eligible if plan.episode.domain == domain]
        metrics[f"reward_mean.{domain}"] = _mean([plan.total_reward for plan in mine])
        metrics[f"success.{domain}"] = _mean([float(plan.episode.solved) for plan in mine])
    return metrics


def staleness_metrics(plans: Sequence[EpisodePlan], policy_step: int) -> dict[str, float]:
    """Steps between the policy that an episode began with and the one that is trained on it."""
    lags = [float(staleness_steps(plan, policy_step)) for plan in plans if plan.trained]
    return {"staleness_mean": _mean(lags), "staleness_max": max(lags, default=0.0)}


def staleness_steps(plan: EpisodePlan, policy_step: int) -> int:
    """How many steps behind the trained policy an episode began."""
    return max(0, policy_step - plan.episode.first_policy_step)


def yield_metrics(measured: Yield) -> dict[str, float]:
    """J with both factors and both conditions (1 = holds)."""
    return {
        "J": measured.j,
        "tokens_per_s": measured.tokens_per_s,
        "sample_efficiency": measured.efficiency,
        "sample_efficiency_95": measured.efficiency_95,
        "noise_bounded": float(measured.noise_bounded),
        "slope_not_negative": float(measured.not_falling),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
