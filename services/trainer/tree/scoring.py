"""An ordinary library model on a forest: its hidden states with each shared token computed once, and its head.

Works on any transformers model whose attention goes through the attention registry (Qwen2/3, Llama, Mistral and their
kin). It refuses what can't be merged exactly: `unmergeable` names it.
"""

# transformers' modules are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from services.trainer.ranks.sharding import full
from services.trainer.tree.attention import tree_attention
from services.trainer.tree.forest import Forest
from services.trainer.tree.head import Head
from services.trainer.tree.plan import AttentionPlan

ATTENTION_NAME = "forgerl_tree"
DROPOUTS = ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "dropout")
"""Names under which the families of transformers configure dropout."""


class ForestAttention(Protocol):
    """Who sees whom, as the layers of a model ask for it."""

    def attend(self, layer: int, inputs: tuple[Tensor, Tensor, Tensor], scale: float) -> Tensor:
        """Output [H, S, D] for query [H, S, D], key and value [K, S, D], K a divisor of H."""
        ...


@dataclass(frozen=True, slots=True)
class WholeForest:
    """All slots at once."""

    plan: AttentionPlan

    def attend(self, layer: int, inputs: tuple[Tensor, Tensor, Tensor], scale: float) -> Tensor:
        """See ForestAttention."""
        return tree_attention(*inputs, self.plan, scale)


def unmergeable(config: Any, longest_path: int) -> str | None:
    """Why a model can't be trained on a forest exactly; None when it can. `longest_path` in tokens."""
    for name in DROPOUTS:
        if getattr(config, name, None):
            return f"{name}: {getattr(config, name)} given, 0 wanted: a shared token would be dropped once"
    if getattr(config, "attn_logit_softcapping", None):
        return f"attn_logit_softcapping: {config.attn_logit_softcapping}: scores are transformed before their softmax"
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


@contextmanager
def on_trees(model: Any) -> Iterator[None]:
    """The model attends by forest inside this block, and as before after it."""
    register_tree_attention()
    causal_lm = whole_model(model)
    before = causal_lm.config._attn_implementation
    causal_lm.set_attn_implementation(ATTENTION_NAME)
    try:
        yield
    finally:
        causal_lm.set_attn_implementation(before)


@contextmanager
def recomputing(model: Any, wanted: bool) -> Iterator[None]:
    """Activations are recomputed in backward passes inside this block, layer by layer, where that is wanted."""
    if not wanted:
        yield
        return
    causal_lm = whole_model(model)
    causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    try:
        yield
    finally:
        causal_lm.gradient_checkpointing_disable()


def hidden_states(model: Any, forest: Forest, attention: ForestAttention) -> Tensor:
    """Last hidden states [S, E] of the forest's slots; inside `on_trees` only."""
    device = next(model.parameters()).device
    output = whole_model(model).base_model(
        input_ids=torch.from_numpy(forest.token_ids_S).to(device)[None],
        position_ids=torch.from_numpy(forest.depths_S).to(device)[None],
        use_cache=False,
        tree_attention=attention,
    )
    return output.last_hidden_state[0]


def whole_model(model: Any) -> Any:
    """The causal LM itself, also where adapters are wrapped around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def head_weight(model: Any) -> Tensor:
    """The LM head's weight [V, E], with gradient where it is trained; where it lies in parts, all ranks call this."""
    return full(whole_model(model).lm_head.weight)


@contextmanager
def open_head(model: Any) -> Iterator[Head]:
    """The head as leaves that take gradients chunk by chunk; what they gathered goes to the model at the end."""
    weight_VE = head_weight(model)
    wide_VE = weight_VE.to(torch.promote_types(weight_VE.dtype, torch.float32))
    bias_V = whole_model(model).lm_head.bias
    leaf_VE = wide_VE if wide_VE.is_leaf else wide_VE.detach().requires_grad_()
    yield Head(leaf_VE, bias_V)
    if leaf_VE is not wide_VE and leaf_VE.grad is not None:
        torch.autograd.backward(wide_VE, leaf_VE.grad)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """The registry's signature: query [1, H, S, D], key and value [1, K, S, D]; answers [1, S, H, D]."""
    attention: ForestAttention = settings["tree_attention"]
    output_HSD = attention.attend(module.layer_idx, (query[0], key[0], value[0]), settings["scaling"])
    return output_HSD.transpose(0, 1)[None], None


def _no_mask(*_args: Any, **_settings: Any) -> None:
    """The attention says who sees whom."""
