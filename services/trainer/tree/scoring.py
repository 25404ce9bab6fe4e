"""Log-probabilities of every sample token under a causal LM, with each shared token computed once.

Works on any transformers model whose attention goes through the attention registry (Qwen2/3, Llama, Mistral and their
kin). It refuses what can't be merged exactly: `unmergeable` names it.
"""

# transformers' modules are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface

from services.trainer.tree.attention import tree_attention
from services.trainer.tree.forest import Forest
from services.trainer.tree.plan import AttentionPlan, plan_attention

ATTENTION_NAME = "forgerl_tree"
HEAD_CHUNK_TOKENS = 2048
"""Logits are made for this many tokens at a time, so that [S, V] is never whole."""


def unmergeable(config: Any, longest_path: int) -> str | None:
    """Why a model can't be trained on a forest exactly; None when it can. `longest_path` in tokens."""
    if getattr(config, "attention_dropout", 0.0):
        return f"attention_dropout: {config.attention_dropout} given, 0 wanted: a shared token would be dropped once"
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if window is not None and window < longest_path:
        return f"sliding_window: {window} is narrower than the longest path of {longest_path} tokens"
    if getattr(config, "num_experts", 0) or getattr(config, "num_local_experts", 0):
        return "mixture of experts: the auxiliary loss depends on how often a token is counted"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention", "sliding_attention"}
    return f"layer_types: {', '.join(sorted(kinds))}: state that isn't attention can't branch" if kinds else None


def register_tree_attention() -> None:
    """Make `forgerl_tree` known to transformers. May be called again."""
    AttentionInterface.register(ATTENTION_NAME, _attend)
    AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


def sample_logprobs(model: Any, forest: Forest, temperature_N: Tensor | None = None) -> Tensor:
    """log p(token | tokens before) for each of the forest's N sample tokens; 0 at the first token of a sample.

    A sample's log-probabilities stand in its order (Forest.offsets). Differentiable; float32 or wider.
    `temperature_N` divides the logits of each token, as sampling did.
    """
    device = next(model.parameters()).device
    slots_N = torch.from_numpy(forest.slots_N).to(device)
    parents_S = torch.from_numpy(forest.parents_S).to(device)
    hidden_SE = _hidden(model, forest, plan_attention(forest), device)
    token_ids_S = torch.from_numpy(forest.token_ids_S).to(device)
    if temperature_N is None:
        logprobs_S = _slot_logprobs(model, hidden_SE, parents_S, token_ids_S, None)
        return logprobs_S[slots_N]
    # A slot that samples at several temperatures has a log-probability for each of them.
    temperature_N = temperature_N.to(device)
    pairs_N2 = torch.stack([slots_N.to(torch.float64), temperature_N.to(torch.float64)], dim=1)
    unique_U2, back_N = torch.unique(pairs_N2, dim=0, return_inverse=True)
    slots_U, temperature_U = unique_U2[:, 0].long(), unique_U2[:, 1]
    return _slot_logprobs(model, hidden_SE, parents_S[slots_U], token_ids_S[slots_U], temperature_U)[back_N]


def _hidden(model: Any, forest: Forest, plan: AttentionPlan, device: torch.device) -> Tensor:
    register_tree_attention()
    base = model.base_model
    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION_NAME)
    try:
        output = base(
            input_ids=torch.from_numpy(forest.token_ids_S).to(device)[None],
            position_ids=torch.from_numpy(forest.depths_S).to(device)[None],
            use_cache=False,
            tree_plan=plan,
        )
    finally:
        model.set_attn_implementation(before)
    return output.last_hidden_state[0]


def _slot_logprobs(
    model: Any, hidden_SE: Tensor, parents_U: Tensor, token_ids_U: Tensor, temperature_U: Tensor | None
) -> Tensor:
    """log p(token | parent's hidden state); 0 at roots. A hidden state with several successors is projected once."""
    logprobs_U = hidden_SE.new_zeros(len(parents_U), dtype=torch.promote_types(hidden_SE.dtype, torch.float32))
    inner_I = torch.nonzero(parents_U >= 0)[:, 0]
    if not len(inner_I):
        return logprobs_U
    ordered_I = inner_I[torch.argsort(parents_U[inner_I], stable=True)]
    predecessors_P, row_I = torch.unique_consecutive(parents_U[ordered_I], return_inverse=True)
    parts: list[Tensor] = []
    for first in range(0, len(predecessors_P), HEAD_CHUNK_TOKENS):
        rows_C = predecessors_P[first : first + HEAD_CHUNK_TOKENS]
        low, high = torch.searchsorted(row_I, torch.tensor([first, first + len(rows_C)], device=row_I.device)).tolist()
        chosen_C = ordered_I[low:high]
        temperature_C = None if temperature_U is None else temperature_U[chosen_C]
        arguments = (model.lm_head, hidden_SE[rows_C], row_I[low:high] - first, token_ids_U[chosen_C], temperature_C)
        parts.append(checkpoint(_chunk_logprobs, *arguments, use_reentrant=False))
    return logprobs_U.index_put((ordered_I,), torch.cat(parts))


def _chunk_logprobs(
    head: torch.nn.Linear, hidden_PE: Tensor, row_C: Tensor, token_C: Tensor, temperature_C: Tensor | None
) -> Tensor:
    wide = torch.promote_types(hidden_PE.dtype, torch.float32)
    logits_PV = torch.nn.functional.linear(hidden_PE.to(wide), head.weight.to(wide), head.bias)
    if temperature_C is None:
        return logits_PV[row_C, token_C] - torch.logsumexp(logits_PV, dim=-1)[row_C]
    scaled_CV = logits_PV[row_C] / temperature_C[:, None].to(wide)
    return scaled_CV.gather(1, token_C[:, None])[:, 0] - torch.logsumexp(scaled_CV, dim=-1)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """The registry's signature: query [1, H, S, D], key and value [1, K, S, D]; answers [1, S, H, D]."""
    repeats = query.shape[1] // key.shape[1]
    key_HSD, value_HSD = (part[0].repeat_interleave(repeats, dim=0) for part in (key, value))
    output_HSD = tree_attention(query[0], key_HSD, value_HSD, settings["tree_plan"], settings["scaling"])
    return output_HSD.transpose(0, 1)[None], None


def _no_mask(*_args: Any, **_settings: Any) -> None:
    """The plan says who sees whom."""
