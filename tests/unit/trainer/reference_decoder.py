"""An independent decoder for one sample: plain torch in float64, from a Qwen3's weights, sharing none of its code."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shape:
    """`theta`: the base of the rotary angles; `eps`: of the norms."""

    layers: int
    heads: int
    key_heads: int
    head_width: int
    theta: float
    eps: float


def reference_logits(weights: Mapping[str, Tensor], shape: Shape, tokens_T: Tensor) -> Tensor:
    """Logits [T, V] of a causal pass over one sample."""
    hidden_TE = weights["model.embed_tokens.weight"][tokens_T]
    for layer in range(shape.layers):
        own = {name.split(f"layers.{layer}.")[1]: w for name, w in weights.items() if f"layers.{layer}." in name}
        normed_TE = norm(hidden_TE, own["input_layernorm.weight"], shape.eps)
        hidden_TE = hidden_TE + attention(own, shape, normed_TE)
        normed_TE = norm(hidden_TE, own["post_attention_layernorm.weight"], shape.eps)
        gate = normed_TE @ own["mlp.gate_proj.weight"].T
        up = normed_TE @ own["mlp.up_proj.weight"].T
        hidden_TE = hidden_TE + (gate * torch.sigmoid(gate) * up) @ own["mlp.down_proj.weight"].T
    return norm(hidden_TE, weights["model.norm.weight"], shape.eps) @ weights["lm_head.weight"].T


def norm(given: Tensor, weight: Tensor, eps: float) -> Tensor:
    return given / torch.sqrt(given.square().mean(-1, keepdim=True) + eps) * weight


def attention(own: Mapping[str, Tensor], shape: Shape, given_TE: Tensor) -> Tensor:
    count = len(given_TE)
    split = (count, -1, shape.head_width)
    query = norm((given_TE @ own["self_attn.q_proj.weight"].T).view(split), own["self_attn.q_norm.weight"], shape.eps)
    key = norm((given_TE @ own["self_attn.k_proj.weight"].T).view(split), own["self_attn.k_norm.weight"], shape.eps)
    value = (given_TE @ own["self_attn.v_proj.weight"].T).view(split)
    query, key = rotated(query, shape), rotated(key, shape)
    later_TT = torch.ones(count, count).triu(1).bool()
    parts: list[Tensor] = []
    for head in range(shape.heads):
        of = head // (shape.heads // shape.key_heads)
        scores_TT = query[:, head] @ key[:, of].T / shape.head_width**0.5
        parts.append(torch.softmax(scores_TT.masked_fill(later_TT, float("-inf")), -1) @ value[:, of])
    return torch.cat(parts, -1) @ own["self_attn.o_proj.weight"].T


def rotated(given_THD: Tensor, shape: Shape) -> Tensor:
    """Pairs (i, i + D/2) turned by position * theta^(-2i/D). The library keeps angles in float32, so this does too."""
    half = shape.head_width // 2
    exponents = torch.arange(0, shape.head_width, 2, dtype=torch.int64).float() / shape.head_width
    speeds = 1.0 / shape.theta**exponents
    angles_T1D = (torch.arange(len(given_THD)).float()[:, None] * speeds)[:, None]
    cos, sin = angles_T1D.cos().double(), angles_T1D.sin().double()
    first, second = given_THD[..., :half], given_THD[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
