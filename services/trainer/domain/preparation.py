"""A batch made ready for the learner: advantages, rows with weights and masks, as a run's resolved spec says.

Pure. It refuses a batch whose every token is too old, and a loss that it doesn't know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forgerl.common.v1 import run_pb2

from services.contract.rewards import RewardWeights
from services.trainer.domain.episodes import EpisodeInput, EpisodePlan, plan_batch
from services.trainer.domain.losses import divides_by_spread
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import BatchRows, RowRules, batch_rows

TOO_OLD = "tokens_too_old"


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """`plans` in the manifest's order, as they come out once old tokens are masked.

    `loss_weights`: by episode, the sum of its tokens' weights; over the batch they sum to 1.
    """

    plans: tuple[EpisodePlan, ...]
    rows: BatchRows
    loss_weights: dict[str, float]

    def masked_tokens(self, episode_id: str) -> int:
        """Tokens of an episode that are too old to be trained."""
        return self.rows.masked_tokens.get(episode_id, 0)


def prepare(groups: Sequence[Sequence[EpisodeInput]], spec: run_pb2.RunSpec, policy_step: int) -> PreparedBatch:
    """Raises StepRefused. `policy_step`: the step whose weights are trained."""
    training, reward = spec.training, spec.reward
    plans = plan_batch(
        groups,
        RewardWeights(reward.alpha, reward.beta, reward.gamma, reward.time_base_s),
        turn_aligned=training.baseline == run_pb2.BASELINE_KIND_TURN_ALIGNED,
        divided=divides_by_spread(training),
    )
    per_group = training.normalisation == run_pb2.LOSS_NORMALISATION_PROMPT_GROUP
    rows = batch_rows(plans, RowRules(policy_step, per_group, training.max_token_staleness_steps))
    if rows.masked_tokens and not rows.rows:
        bound = training.max_token_staleness_steps
        raise StepRefused(f"every token of the batch is more than {bound} steps old (max_token_staleness_steps)")
    weights: dict[str, float] = {}
    for row in rows.rows:
        weights[row.episode_id] = weights.get(row.episode_id, 0.0) + float(row.weights_T.sum())
    return PreparedBatch(tuple(_masked(plan, rows) for plan in plans), rows, weights)


def _masked(plan: EpisodePlan, rows: BatchRows) -> EpisodePlan:
    masked = rows.masked_tokens.get(plan.episode.episode_id, 0)
    if not plan.trained or not masked:
        return plan
    left = plan.trained_tokens - masked
    why_not = "" if left else TOO_OLD
    return replace(plan, trained_tokens=left, trained=not why_not, why_not=why_not)
