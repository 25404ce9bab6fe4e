"""Low-rank adapters (LoRA, arXiv 2106.09685) on the linear layers of a causal LM, by peft; the head has none.

They are put into the model itself, which stays the class it was. It refuses dropout: engine and trainer would differ.
"""

# peft is partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import Optimiser

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
BASE_LAYER = ".base_layer."
DOWN, UP = ".lora_A.default.weight", ".lora_B.default.weight"
PEFT_PREFIX = "base_model.model."


def adapt(model: Any, optimiser: Optimiser) -> None:
    """Put fresh adapters into the model and freeze everything else; the same seed gives the same adapters."""
    # Imported late: a run that trains all weights has no use for it.
    from peft import LoraConfig, inject_adapter_in_model

    torch.manual_seed(optimiser.seed)
    inject_adapter_in_model(
        LoraConfig(
            r=optimiser.lora_rank,
            lora_alpha=optimiser.lora_alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=0.0,
            bias="none",
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
        model,
    )


def merged(full: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Ordinary weights W + scale * B A, from whole tensors under the names of an adapted model."""
    weights: dict[str, Tensor] = {}
    for name, tensor in full.items():
        if name.endswith((DOWN, UP)):
            continue
        plain = name.replace(BASE_LAYER, ".")
        stem = plain.removesuffix(".weight")
        if BASE_LAYER in name and stem + DOWN in full and plain.endswith(".weight"):
            tensor = tensor + scale * (full[stem + UP] @ full[stem + DOWN])
        weights[plain] = tensor
    return weights


def save_adapter(full: Mapping[str, Tensor], optimiser: Optimiser, folder: Path) -> None:
    """Write an ordinary peft directory."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {peft_name(name): tensor.contiguous() for name, tensor in full.items() if name.endswith((DOWN, UP))}
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    layers = sorted({name.rpartition(".lora_")[0].removeprefix(PEFT_PREFIX) for name in tensors})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": optimiser.base,
        "r": optimiser.lora_rank,
        "lora_alpha": optimiser.lora_alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": layers,
        "inference_mode": True,
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1, sort_keys=True))


def load_adapter(model: Any, folder: Path) -> None:
    """Put saved adapter weights into an adapted model that isn't sharded yet. Raises StepRefused."""
    try:
        saved = load_file(folder / WEIGHTS_FILE)
    except (OSError, ValueError, SafetensorError) as error:
        raise StepRefused(f"{folder / WEIGHTS_FILE} can't be loaded: {error}") from error
    for name, parameter in model.named_parameters():
        if name.endswith((DOWN, UP)):
            tensor = saved.pop(peft_name(name), None)
            if tensor is None or tensor.shape != parameter.shape:
                raise StepRefused(f"{folder / WEIGHTS_FILE}: {peft_name(name)} is missing or has another shape")
            parameter.data.copy_(tensor)
    if saved:
        raise StepRefused(f"{folder / WEIGHTS_FILE}: {sorted(saved)[0]} belongs to no adapter of the model")


def peft_name(name: str) -> str:
    """A parameter's name as peft writes it."""
    return PEFT_PREFIX + name.replace(".default.", ".")
