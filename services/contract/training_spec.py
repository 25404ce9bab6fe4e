"""Defaults and checks of a run file's `training` section. It refuses to compute: the trainer does."""

import math

from forgerl.common.v1 import run_pb2

from services.contract.bounds import UINT32_MAX, within

DEFAULTS = {
    "cispo_cap": 5.0,
    "learning_rate": 3e-4,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.95,
    "max_grad_norm": 1.0,
    "micro_batch_tokens": 16384,
    "mismatch_limit": 0.1,
    "keep_checkpoints": 2,
    "min_reward_spread": 0.01,
}


def fill_training(training: run_pb2.TrainingSpec) -> None:
    """Settle what isn't a plain number; those are filled in already."""
    training.loss = training.loss or run_pb2.LOSS_KIND_CISPO
    training.baseline = training.baseline or run_pb2.BASELINE_KIND_LEAVE_ONE_OUT_TOKEN_MEAN


def check_training(training: run_pb2.TrainingSpec) -> list[str]:
    """Every problem of the section."""
    return [
        *within("training.cispo_cap", training.cispo_cap, 0.0, math.inf, open_low=True),
        *within("training.learning_rate", training.learning_rate, 0.0, 1.0, open_low=True),
        *within("training.weight_decay", training.weight_decay, 0.0, 1.0),
        *within("training.adam_beta1", training.adam_beta1, 0.0, 0.9999),
        *within("training.adam_beta2", training.adam_beta2, 0.0, 0.99999),
        *within("training.max_grad_norm", training.max_grad_norm, 0.0, math.inf, open_low=True),
        *within("training.micro_batch_tokens", training.micro_batch_tokens, 1, UINT32_MAX),
        *within("training.mismatch_limit", training.mismatch_limit, 0.0, math.inf),
        *within("training.keep_checkpoints", training.keep_checkpoints, 1, UINT32_MAX),
        *within("training.min_reward_spread", training.min_reward_spread, 0.0, 1.0),
    ]
