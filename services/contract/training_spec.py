"""Defaults and checks of a run file's `training` section. It refuses to compute: the trainer does.

A field that the chosen loss or option wouldn't use has no default and is refused when it is given.
"""

import math

from forgerl.common.v1 import run_pb2

from services.contract.bounds import FINITE, UINT32_MAX, within

DEFAULTS = {
    "learning_rate": 3e-4,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.95,
    "max_grad_norm": 1.0,
    "micro_batch_tokens": 16384,
    "mismatch_limit": 0.1,
    "keep_checkpoints": 2,
    "min_reward_spread": 0.01,
    "truncated_importance_cap": 0.0,
    "max_token_staleness_steps": 0,
    "merge_prefixes": True,
    "activation_checkpointing": False,
    "lora_rank": 0,
    "mtp_top_k": 0,
    "mismatch_kl_alarm": 0.01,
}
CISPO_CAP = 5.0
CLIPS = {
    # Schulman et al. 2017, section 6.1; for sequences Zheng et al. 2025 (GSPO), section 5.1.
    run_pb2.LOSS_KIND_GRPO: (0.2, 0.2),
    run_pb2.LOSS_KIND_PPO_CLIP: (0.2, 0.2),
    run_pb2.LOSS_KIND_GSPO: (3e-4, 4e-4),
}
"""Lower and upper width of the ratio's interval, where none are given."""

MAX_LORA_RANK = 1024
"""A rank that no model here needs: as wide as a layer, adapters train no less than all weights, and cost more."""
MTP_LEARNING_RATE = 1e-3
"""A draft head is small and follows a moving target, so it learns faster than the policy."""


def fill_training(training: run_pb2.TrainingSpec) -> None:
    """Settle what follows from other fields; the plain defaults are filled in already."""
    training.loss = training.loss or run_pb2.LOSS_KIND_CISPO
    training.baseline = training.baseline or run_pb2.BASELINE_KIND_LEAVE_ONE_OUT_TOKEN_MEAN
    training.normalisation = training.normalisation or run_pb2.LOSS_NORMALISATION_GLOBAL
    if training.loss in CLIPS:
        low, high = CLIPS[training.loss]
        training.clip_low = training.clip_low if training.HasField("clip_low") else low
        training.clip_high = training.clip_high if training.HasField("clip_high") else high
    elif not training.HasField("cispo_cap"):
        training.cispo_cap = CISPO_CAP
    if training.lora_rank and not training.HasField("lora_alpha"):
        training.lora_alpha = 2.0 * training.lora_rank
    if training.mtp_top_k and not training.HasField("mtp_learning_rate"):
        training.mtp_learning_rate = MTP_LEARNING_RATE


def check_training(spec: run_pb2.RunSpec) -> list[str]:
    """Every problem of the section in a resolved spec."""
    training = spec.training
    return [
        *_check_loss(training),
        *within("training.learning_rate", training.learning_rate, 0.0, 1.0, open_low=True),
        *within("training.weight_decay", training.weight_decay, 0.0, 1.0),
        *within("training.adam_beta1", training.adam_beta1, 0.0, 0.9999),
        *within("training.adam_beta2", training.adam_beta2, 0.0, 0.99999),
        *within("training.max_grad_norm", training.max_grad_norm, 0.0, math.inf, open_low=True),
        *within("training.micro_batch_tokens", training.micro_batch_tokens, 1, UINT32_MAX),
        *within("training.mismatch_limit", training.mismatch_limit, 0.0, math.inf),
        *within("training.keep_checkpoints", training.keep_checkpoints, 1, UINT32_MAX),
        *within("training.min_reward_spread", training.min_reward_spread, 0.0, 1.0),
        *within("training.mismatch_kl_alarm", training.mismatch_kl_alarm, 0.0, math.inf),
        *_check_staleness(spec),
        *_check_options(training),
    ]


def _check_staleness(spec: run_pb2.RunSpec) -> list[str]:
    """Generation runs so many steps ahead, so a smaller bound would leave nothing to train in whole batches."""
    given, ahead = spec.training.max_token_staleness_steps, spec.scheduling.lookahead_steps
    if not given or given >= ahead:
        return []
    allowed = f"0, or at least scheduling.lookahead_steps ({ahead}): whole batches may be that old"
    return [f"training.max_token_staleness_steps: given {given}; allowed {allowed}"]


def _check_loss(training: run_pb2.TrainingSpec) -> list[str]:
    cap = within("training.truncated_importance_cap", training.truncated_importance_cap, 0.0, math.inf)
    if training.loss == run_pb2.LOSS_KIND_CISPO:
        problems = within("training.cispo_cap", training.cispo_cap, 0.0, math.inf, open_low=True)
        for name in ("clip_low", "clip_high"):
            problems += _unused(training, name, "above 0, with grpo, gspo or ppo_clip")
        if training.truncated_importance_cap > 0:
            given = f"training.truncated_importance_cap: given {training.truncated_importance_cap:g}"
            cap = [f"{given}; allowed 0 with cispo, whose cispo_cap bounds the same ratio already"]
        return problems + cap
    return [
        *_unused(training, "cispo_cap", "above 0, with cispo"),
        *within("training.clip_low", training.clip_low, 0.0, 1.0, open_low=True),
        *within("training.clip_high", training.clip_high, 0.0, math.inf, open_low=True),
        *cap,
    ]


def _check_options(training: run_pb2.TrainingSpec) -> list[str]:
    problems = within("training.lora_rank", training.lora_rank, 0, MAX_LORA_RANK)
    if training.lora_rank:
        problems += within("training.lora_alpha", training.lora_alpha, 0.0, FINITE, open_low=True)
    else:
        problems += _unused(training, "lora_alpha", "above 0, with lora_rank")
    if training.mtp_top_k:
        problems += within("training.mtp_learning_rate", training.mtp_learning_rate, 0.0, 1.0, open_low=True)
    else:
        problems += _unused(training, "mtp_learning_rate", "above 0..1, with mtp_top_k")
    return problems


def _unused(training: run_pb2.TrainingSpec, name: str, allowed: str) -> list[str]:
    """The problem of a number that nothing would use."""
    if not training.HasField(name):  # type: ignore[arg-type]
        return []
    return [f"training.{name}: given {getattr(training, name):g}; allowed {allowed}"]
