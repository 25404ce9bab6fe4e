"""The model that is timed: a small decoder of the library's, its widths chosen so that theory is that of the tables."""

# transformers' modules are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from loadtests.tree.workloads import VOCABULARY

WIDTH, LAYERS, FEED_FORWARD = 128, 2, 704
HEADS, KEY_HEADS, HEAD_WIDTH = 2, 1, 64


def build_model(dtype: torch.dtype, seed: int = 0) -> Any:
    """A random Qwen3 in the dtype, with the library's fused attention."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
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
    return Qwen3ForCausalLM(config).to(dtype)
