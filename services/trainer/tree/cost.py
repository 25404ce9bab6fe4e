"""What merging can gain at most: floating-point operations of linear layers, head and attention, by hand count.

One multiply-add is two operations. A linear layer's backward costs twice its forward; attention's backward 2.5 times,
since it computes the scores anew (Dao et al. 2022). Norms, activations and embeddings are left out. It refuses to
measure.
"""

from dataclasses import dataclass
from typing import Any

LINEAR_PASSES = 3.0
ATTENTION_PASSES = 3.5


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Forward operations: of all layers' linear parts a token, of the head a token, of attention a query-key pair."""

    layers_per_token: float
    head_per_token: float
    attention_per_pair: float


def model_cost(config: Any) -> ModelCost:
    """The cost of a decoder with gated feed-forward layers and grouped queries, from its Hugging Face config."""
    width, layers = config.hidden_size, config.num_hidden_layers
    head_width = getattr(config, "head_dim", None) or width // config.num_attention_heads
    queries = config.num_attention_heads * head_width
    keys = config.num_key_value_heads * head_width
    weights = width * queries * 2 + width * keys * 2 + 3 * width * config.intermediate_size
    return ModelCost(2.0 * layers * weights, 2.0 * width * config.vocab_size, 4.0 * layers * queries)
