"""The small network: an ordinary Qwen3ForCausalLM of about one million parameters, in float32.

It refuses tied embeddings: an engine that packs its LM head once would keep the old one after a weight swap.
"""

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from services.cli.model.tokenizer import MAX_MODEL_TOKENS, ChatTokenizer


def new_network(tokenizer: ChatTokenizer, seed: int) -> Qwen3ForCausalLM:
    """An untrained network for this tokenizer; the same for the same seed."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_MODEL_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.turn_end,
        pad_token_id=tokenizer.padding,
        initializer_range=0.05,
        dtype="float32",
    )
    torch.manual_seed(seed)
    network = Qwen3ForCausalLM(config)
    network.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        eos_token_id=tokenizer.turn_end,
        pad_token_id=tokenizer.padding,
    )
    return network


def parameter_count(network: Qwen3ForCausalLM) -> int:
    """How many numbers the network holds."""
    return sum(parameter.numel() for parameter in network.parameters())
