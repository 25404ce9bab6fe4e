"""A policy's folder: names of its parts, which the trainer writes, engines read and the command copies. Pure.

The folder is an ordinary Hugging Face model directory; what is said here stands in it besides. It refuses to read one.
"""

ADAPTER_FOLDER = "adapter"
"""A peft adapter, beside the weights that it is merged into."""

DRAFT_FOLDER = "draft"
"""A draft head: config.json with the digest of the weights that it was trained for, and model.safetensors."""

DRAFT_ARCHITECTURE = "ForgeDraftHead"
DRAFT_PREFIX = "model.mtp_layers.0."
"""What the head's weights are called before; MiMo's name for its first multi-token-prediction layer."""

DRAFTED_MODELS = ("qwen2", "qwen3")
"""Types of models whose decoder layer the head has."""

MODEL_SHAPE = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)
"""Entries of config.json that an engine keeps from its start on: every policy that it is to load has the same."""
