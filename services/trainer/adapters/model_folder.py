"""Hugging Face model directories: loading one in float32, and writing one that an engine can load.

It refuses a folder without config, weights or tokenizer, and a tokenizer without a chat template.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from services.trainer.domain.refusal import StepRefused

COMPANIONS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""Files beside the weights that belong to tokenizer, template and generation."""

NOT_COMPANIONS = ("config.json", "model.safetensors.index.json", "manifest.json")


def load_model(folder: Path) -> torch.nn.Module:
    """A causal LM in float32, its head included. Raises StepRefused with one line."""
    _check_folder(folder)
    disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise StepRefused(f"model.path: {folder} can't be loaded: {_first_line(error)}") from error
    _check_head(model, folder)
    return model


def _check_head(model: Any, folder: Path) -> None:
    """Log-probabilities are made from hidden states and the head alone, so nothing may happen to logits after it."""
    ids = torch.arange(4)[None] % model.config.vocab_size
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits.double()
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state.double()
        head = model.get_output_embeddings()
        bias = None if head.bias is None else head.bias.double()
        plain = torch.nn.functional.linear(hidden, head.weight.double(), bias)
    if not torch.allclose(logits, plain, rtol=1e-3, atol=1e-3 * float(logits.abs().max())):
        raise StepRefused(
            f"model.path: {folder} ({model.config.model_type}) scales or caps its logits after the head; not supported"
        )


def check_tokenizer(folder: Path) -> None:
    """Raise StepRefused unless the folder has a tokenizer with a chat template."""
    _check_folder(folder)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise StepRefused(f"model.path: {folder} has no usable tokenizer: {_first_line(error)}") from error
    if not tokenizer.chat_template:
        raise StepRefused(f"model.path: the tokenizer of {folder} has no chat template")


def read_companions(folder: Path) -> dict[str, bytes]:
    """Contents of the tokenizer, template and generation files; kept in memory, since the folder may go."""
    paths = {path for pattern in COMPANIONS for path in folder.glob(pattern)}
    return {path.name: path.read_bytes() for path in sorted(paths) if path.name not in NOT_COMPANIONS}


def save_model(model: Any, weights: Mapping[str, Tensor], companions: Mapping[str, bytes], folder: Path) -> None:
    """Write the model's config, weights under ordinary names, and the companions as they were read."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=dict(weights))
    for name, content in companions.items():
        (folder / name).write_bytes(content)


def weights_digest(folder: Path) -> str:
    """sha256 over names and sha256s of the weight files: the same weights always get the same digest."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        total.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise StepRefused(f"model.path: given {folder}; allowed a Hugging Face model directory (it has no config.json)")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
