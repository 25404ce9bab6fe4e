"""The draft head as a vLLM model. vLLM imports it by name; it refuses to hold embedding or LM head of its own."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.model_executor.models.qwen2 import Qwen2DecoderLayer
from vllm.model_executor.models.qwen3 import Qwen3DecoderLayer
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

from services.contract.policy_folder import DRAFT_PREFIX

_LAYERS = {"Qwen2ForCausalLM": Qwen2DecoderLayer, "Qwen3ForCausalLM": Qwen3DecoderLayer}
_BLOCK = ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
_PACKED = {
    ".q_proj": (".qkv_proj", "q"),
    ".k_proj": (".qkv_proj", "k"),
    ".v_proj": (".qkv_proj", "v"),
    ".gate_proj": (".gate_up_proj", 0),
    ".up_proj": (".gate_up_proj", 1),
}


class ForgeDraftHead(nn.Module):
    """As vLLM's proposer calls it: token after, hidden state before, one more hidden state out."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        policy: Any = vllm_config.model_config.hf_config
        # `model` and `lm_head` are where the proposer puts the policy's embedding and LM head.
        self.model: Any = nn.Module()
        self.head = HeadLayer(vllm_config, f"draft.layers.{policy.num_hidden_layers}")
        self.logits_processor = LogitsProcessor(policy.vocab_size)
        self.config = policy

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """The policy's embedding."""
        return self.model.embed_tokens(input_ids)

    def forward(
        self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor, inputs_embeds: Tensor | None = None, **_: Any
    ) -> Tensor:
        """Hidden states [T, E] whose logits are of the token after `input_ids`."""
        tokens = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        return self.head(tokens, positions, hidden_states)

    def compute_logits(self, hidden_states: Tensor, **_: Any) -> Tensor | None:
        """The policy's LM head on them."""
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Nothing: the engine's own model folder has no head; load_head brings one with each policy.

        Until then it computes zeros: vLLM runs it also while no guess is asked for, and memory as it lies may be NaN.
        """
        for parameter in self.head.parameters():
            parameter.data.zero_()
        return {name for name, _ in self.named_parameters()}

    def load_head(self, vllm_config: VllmConfig, folder: Path) -> None:
        """Take the weights of a policy's draft folder, in place."""
        reload_weights(vllm_config, self.head, _stored(folder), None, True)


class HeadLayer(nn.Module):
    """All weights that are the head's own."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        config: Any = vllm_config.model_config.hf_config
        width, eps = config.hidden_size, config.rms_norm_eps
        self.token_layernorm = RMSNorm(width, eps=eps)
        self.hidden_layernorm = RMSNorm(width, eps=eps)
        self.input_proj = nn.Linear(2 * width, width, bias=False)
        layer = _LAYERS[config.architectures[0]]
        self.mtp_block = layer(config=config, cache_config=vllm_config.cache_config, prefix=prefix)
        self.final_layernorm = RMSNorm(width, eps=eps)

    def forward(self, tokens: Tensor, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """One more hidden state for each position."""
        both = torch.cat([self.hidden_layernorm(hidden_states), self.token_layernorm(tokens)], dim=-1)
        added, residual = self.mtp_block(positions, self.input_proj(both), None)
        return self.final_layernorm(residual + added)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Names as in MiMo's checkpoints, after `model.mtp_layers.0.`."""
        prefixes = {f"{part}.": f"mtp_block.{part}." for part in _BLOCK}
        mapper = WeightsMapper(orig_to_new_prefix=prefixes, orig_to_new_stacked=_PACKED)
        return AutoWeightsLoader(self).load_weights(weights, mapper=mapper)


def _stored(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name.removeprefix(DRAFT_PREFIX), file.get_tensor(name)
