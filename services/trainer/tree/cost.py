"""What merging can gain at most: floating-point operations of linear layers, head and attention, by hand count.

One multiply-add is two operations. A linear layer's backward costs twice its forward; attention's backward 2.5 times,
since it computes the scores anew (Dao et al. 2022). Norms, activations and embeddings are left out. It refuses to
measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.trainer.tree.forest import NO_SLOT, Forest
from services.trainer.tree.plan import plan_attention

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


def merged_operations(forest: Forest, cost: ModelCost) -> float:
    """Forward and backward of the forest, once."""
    projected = len({int(parent) for parent in forest.parents_S if parent != NO_SLOT})
    linear = len(forest.token_ids_S) * cost.layers_per_token + projected * cost.head_per_token
    return LINEAR_PASSES * linear + ATTENTION_PASSES * plan_attention(forest).scores * cost.attention_per_pair


def separate_operations(lengths: Sequence[int], cost: ModelCost) -> float:
    """Forward and backward of every sample by itself, without padding."""
    linear = sum(length * cost.layers_per_token + max(0, length - 1) * cost.head_per_token for length in lengths)
    pairs = sum(length * (length + 1) // 2 for length in lengths)
    return LINEAR_PASSES * linear + ATTENTION_PASSES * pairs * cost.attention_per_pair


def theoretical_speedup(forest: Forest, cost: ModelCost) -> float:
    """Operations of the samples by themselves over those of the forest."""
    lengths = [int(end - start) for start, end in zip(forest.offsets[:-1], forest.offsets[1:], strict=True)]
    return separate_operations(lengths, cost) / max(1.0, merged_operations(forest, cost))
