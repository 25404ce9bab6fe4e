"""The model that is timed: a small decoder of the library's, its widths chosen so that theory is that of the tables."""

# transformers' modules are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

WIDTH, LAYERS, FEED_FORWARD = 128, 2, 704
HEADS, KEY_HEADS, HEAD_WIDTH = 2, 1, 64


def build_model(dtype: torch.dtype, seed: int, vocabulary: int) -> Any:
    """A random Qwen3 in the dtype, with the library's fused attention."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=HEAD_WIDTH,
        tie_word_embeddings=False,
        max_position_embeddings=32768,
    )
    config._attn_implementation = "sdpa"
    model: Any = Qwen3ForCausalLM(config)
    return model.to(dtype)


def build_exact_model(seed: int, vocabulary: int) -> Any:
    """The same model in float64 throughout: the library's norms would round to float32 on the way."""
    model = build_model(torch.float64, seed, vocabulary)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "Qwen3RMSNorm":
                norm = torch.nn.RMSNorm(len(child.weight), eps=model.config.rms_norm_eps, dtype=torch.float64)
                setattr(parent, name, norm)
    return model
