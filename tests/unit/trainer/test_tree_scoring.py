"""Log-probabilities and gradients on a forest equal those of each sample alone, for ordinary library models."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from services.trainer.tree.forest import build_forest
from services.trainer.tree.head import Targets
from services.trainer.tree.passes import PassOptions, Scores, gradient_pass
from services.trainer.tree.scoring import unmergeable

FAMILIES = [
    (Qwen2Config, Qwen2ForCausalLM),
    (Qwen3Config, Qwen3ForCausalLM),
    (LlamaConfig, LlamaForCausalLM),
    (MistralConfig, MistralForCausalLM),
]


def small_model(config_type: Any, model_type: Any, tied: bool) -> Any:
    config = config_type(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=tied,
        max_position_embeddings=128,
        sliding_window=None,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return model_type(config).double()


def alone(model: Any, samples: list[Any], temperature_N: Tensor) -> Tensor:
    """Each sample by itself, over the library's own eager attention."""
    parts: list[Tensor] = []
    for sample, temperature in zip(samples, torch.split(temperature_N, [len(s) for s in samples]), strict=True):
        tokens = torch.tensor(sample)[None]
        logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].double() / temperature[1:, None]
        chosen = torch.log_softmax(logits, -1).gather(1, tokens[0, 1:, None])[:, 0]
        parts += [torch.zeros(1, dtype=torch.float64), chosen]
    return torch.cat(parts)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("config_type", "model_type"), FAMILIES)
def test_equals_each_sample_alone(config_type: Any, model_type: Any, tied: bool) -> None:
    rng = np.random.default_rng(1)
    model = small_model(config_type, model_type, tied)
    stem = rng.integers(0, 50, 10)
    samples = [np.concatenate([stem[: rng.integers(1, 10)], rng.integers(0, 50, rng.integers(0, 9))]) for _ in range(8)]
    forest = build_forest(samples)
    temperature_N = torch.tensor(rng.choice([0.7, 1.0, 1.3], len(forest.slots_N)))
    weight_N = torch.randn(len(forest.slots_N), dtype=torch.float64)
    single = alone(model, samples, temperature_N)
    parameters = list(model.parameters())
    wanted = (single, *torch.autograd.grad((single * weight_N).sum(), parameters))
    # Every token that has one before it.
    places_M = np.flatnonzero(forest.parents_S[forest.slots_N] >= 0)
    slots_M = forest.slots_N[places_M]
    ones_M = np.ones(len(places_M))
    targets = Targets(forest.parents_S[slots_M], forest.token_ids_S[slots_M], temperature_N.numpy()[places_M], ones_M)
    weight_M = weight_N[torch.from_numpy(places_M)]

    def objective(scores: Scores, targets_M: Any) -> Tensor:
        return (scores.logprobs_N * weight_M[torch.from_numpy(targets_M)]).sum()

    result = gradient_pass(model, forest, targets, objective, PassOptions(10_000, local=True))
    merged = torch.zeros_like(single).index_put((torch.from_numpy(places_M),), result.scores.logprobs_N.double())
    got = (merged, *(parameter.grad for parameter in parameters))
    for left, right in zip(got, wanted, strict=True):
        assert torch.linalg.norm(left - right) <= 1e-6 * torch.linalg.norm(right)


def test_what_cannot_be_merged_is_named() -> None:
    config = Qwen3Config(attention_dropout=0.1)
    assert "attention_dropout" in str(unmergeable(config, 100))
    assert "sliding_window" in str(unmergeable(MistralConfig(sliding_window=64), 100))
    assert unmergeable(MistralConfig(sliding_window=64), 64) is None
    assert unmergeable(Qwen3Config(), 4096) is None
