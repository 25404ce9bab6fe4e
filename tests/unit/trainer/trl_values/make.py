"""Makes losses.json: TRL's own loss and gradient on the numbers of `two_by_three` and of a ragged batch.

TRL is not a dependency of this project. In an environment of its own: pip install trl==1.16.0, then python make.py.
The trainer's forward pass is replaced by given log-probabilities; everything after it is TRL's code.
"""

import json
import math
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

TWO_BY_THREE = {
    "trained": [[0.5, 0.5, 0.25], [0.4, 0.6, 0.4]],
    "sampled": [[0.5, 0.125, 0.5], [0.2, 0.8, 0.1]],
    "mask": [[1, 1, 1], [1, 1, 1]],
    "advantages": [1.0, -0.5],
}
RAGGED = {
    "trained": [[0.7, 0.3, 0.45, 0.05], [0.9, 0.2, 0.6, 0.5], [0.35, 0.8, 0.15, 0.5]],
    "sampled": [[0.6, 0.33, 0.4, 0.06], [0.8, 0.31, 0.5, 0.5], [0.37, 0.7, 0.02, 0.25]],
    "mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]],
    "advantages": [0.8, 0.3, -1.1],
}
SETTINGS = {
    "cispo": {"loss_type": "cispo", "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 1.5},
    "ppo_clip": {"loss_type": "dapo", "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2},
    "two_sided": {
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "delta": 1.5,
    },
    # Of a sequence's loss TRL takes the mean by sequence: with weights of 1/(sequences * tokens) ours does too.
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.2, "epsilon_high": 0.2},
}


def trl_loss(settings: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    trained_BT = torch.tensor(batch["trained"], dtype=torch.float64).log().requires_grad_()
    mask_BT = torch.tensor(batch["mask"], dtype=torch.float64)
    same = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x
    )
    trainer = SimpleNamespace(
        **settings,
        args=SimpleNamespace(delta=settings.get("delta"), steps_per_generation=1, use_bias_correction_kl=False),
        model=SimpleNamespace(training=True),
        accelerator=same,
        beta=0.0,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1,
        max_completion_length=mask_BT.shape[1],
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (trained_BT, torch.zeros_like(mask_BT), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(len(mask_BT), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask_BT), 1, dtype=torch.long),
        "completion_ids": torch.zeros(mask_BT.shape, dtype=torch.long),
        "completion_mask": mask_BT,
        "advantages": torch.tensor(batch["advantages"], dtype=torch.float64),
        "old_per_token_logps": torch.tensor(batch["sampled"], dtype=torch.float64).log(),
        "num_items_in_batch": mask_BT.sum(),
    }
    loss = MethodType(GRPOTrainer._compute_loss, trainer)(trainer.model, inputs)
    loss.backward()
    assert trained_BT.grad is not None and math.isfinite(float(loss))
    return {"loss": float(loss.detach()), "gradient": trained_BT.grad.tolist()}


def main() -> None:
    batches = {"two_by_three": TWO_BY_THREE, "ragged": RAGGED}
    values = {
        name: {kind: trl_loss(settings, batch) for kind, settings in SETTINGS.items()}
        for name, batch in batches.items()
    }
    made = {
        "trl": version("trl"),
        "torch": version("torch"),
        "settings": SETTINGS,
        "batches": batches,
        "values": values,
    }
    Path(__file__).with_name("losses.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
