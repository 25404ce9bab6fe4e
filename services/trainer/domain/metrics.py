"""The numbers of a step, under the names that events, CSV and TensorBoard use.

It refuses to measure: everything is handed in.
"""

from collections.abc import Mapping, Sequence

from services.trainer.domain.episodes import EpisodePlan
from services.trainer.domain.guard import BatchStats, DomainStats
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.preparation import PreparedBatch
from services.trainer.domain.training_yield import Yield

QUANTILES = (0.01, 0.5, 0.95, 0.99)


def all_metrics(stats: BatchStats, prepared: PreparedBatch, grad_norm: float, policy_step: int) -> dict[str, float]:
    """Everything that a step says of itself; J and the alarm are added where they are known."""
    plans = prepared.plans
    return (
        step_metrics(stats, grad_norm)
        | stats.merging.metrics()
        | quantile_metrics(stats.histograms)
        | dict(stats.draft)
        | reward_metrics(plans)
        | staleness_metrics(plans, policy_step)
        | domain_metrics(stats, plans)
        | {"masked_tokens": float(sum(prepared.rows.masked_tokens.values()))}
    )


def step_metrics(stats: BatchStats, grad_norm: float) -> dict[str, float]:
    """What the batch and the optimiser say."""
    return {
        "loss": stats.loss,
        "grad_norm": grad_norm,
        "grad_noise": stats.grad_noise,
        "entropy": stats.entropy,
        "ratio_mean": stats.ratio_mean,
        "ratio_max": stats.ratio_max,
        "clip_share": stats.clip_share,
        "mismatch_kl": stats.mismatch_kl,
        "mismatch_kl_fresh": stats.fresh_kl,
        "logprob_diff_mean": stats.logprob_diff_mean,
        "logprob_diff_fresh_mean": stats.fresh_diff_mean,
        "logprob_diff_max": stats.fresh_diff_max,
        "fresh_tokens": float(stats.fresh_tokens),
        "tokens": float(stats.tokens),
    }


def quantile_metrics(histograms: Mapping[str, Histogram]) -> dict[str, float]:
    """Quantiles of each histogram, `ratio_p50` for one; what a CSV file can hold of it."""
    return {
        f"{name}_p{round(100 * share):02d}": histogram.quantile(share)
        for name, histogram in histograms.items()
        for share in QUANTILES
    }


def domain_metrics(stats: BatchStats, plans: Sequence[EpisodePlan]) -> dict[str, float]:
    """`domain/<name>/<metric>` for every domain of the batch; loss and the others are means over its trained tokens."""
    metrics: dict[str, float] = {}
    for name in sorted({plan.episode.domain for plan in plans}):
        trained = [plan for plan in plans if plan.episode.domain == name and plan.trained]
        seen = stats.domains.get(name, DomainStats())
        named = {
            "reward_mean": _mean([plan.total_reward for plan in trained]),
            "success": _mean([float(plan.episode.solved) for plan in trained]),
            "episodes": float(len(trained)),
            "tokens": float(seen.tokens),
            "loss": seen.loss,
            "entropy": seen.entropy,
            "ratio_mean": seen.ratio_mean,
            "ratio_max": seen.ratio_max,
            "clip_share": seen.clip_share,
            "mismatch_kl": seen.mismatch_kl,
        }
        metrics |= {f"domain/{name}/{metric}": value for metric, value in named.items()}
    return metrics


def reward_metrics(plans: Sequence[EpisodePlan]) -> dict[str, float]:
    """Means over the eligible episodes, in all and by domain; of the total reward over the trained ones."""
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
        metrics[f"reward_mean.{domain}"] = _mean([plan.total_reward for plan in mine if plan.trained])
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
