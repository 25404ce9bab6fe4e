"""The draft head: a decoder layer more, that guesses the token after next from the policy's last hidden state.

Its shape is that of MiMo's multi-token-prediction layer, over the policy's own decoder layer, embedding and LM head.
It is written beside the policy, in `draft/`, stamped with the digest of the weights that it was trained for. It refuses
architectures that the engine's draft path doesn't carry.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from services.contract.policy_folder import DRAFT_ARCHITECTURE, DRAFT_FOLDER, DRAFT_PREFIX, DRAFTED_MODELS
from services.trainer.domain.refusal import StepRefused
from services.trainer.tree.edges import steps_of
from services.trainer.tree.forest import Forest
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import ATTENTION_NAME, WholeForest, register_tree_attention, whole_model


class DraftHead(nn.Module):
    """Made from the policy: its last layer and last norm are where the head starts."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        policy = whole_model(policy)
        kind = policy.config.model_type
        if kind not in DRAFTED_MODELS:
            raise StepRefused(f"training.mtp_top_k: given a {kind} model; allowed with {', '.join(DRAFTED_MODELS)}")
        register_tree_attention()
        base = policy.base_model
        # As fields of its own the policy would become part of the head, be saved and trained with it.
        self._policy = (policy,)
        self.token_layernorm = _unit(base.norm)
        self.hidden_layernorm = _unit(base.norm)
        width = policy.config.hidden_size
        self.input_proj = nn.Linear(2 * width, width, bias=False, dtype=base.norm.weight.dtype)
        self.mtp_block = copy.deepcopy(base.layers[-1])
        self.mtp_block.self_attn.config._attn_implementation = ATTENTION_NAME
        self.final_layernorm = copy.deepcopy(base.norm)
        with torch.no_grad():
            identity = torch.eye(width, dtype=self.input_proj.weight.dtype)
            self.input_proj.weight.copy_(torch.cat([identity, identity], dim=1))
        self.to(base.norm.weight.device)

    def forward(self, hidden_SE: Tensor, forest: Forest) -> tuple[Tensor, Tensor]:
        """For each step of the forest a hidden state [T, E] from which the policy's LM head guesses what follows the
        step, and the slot [T] that the step leads to, whose own hidden state knows."""
        policy = self._policy[0]
        steps, slots = steps_of(forest)
        device = hidden_SE.device
        slots_T, parents_S = torch.from_numpy(slots).to(device), torch.from_numpy(forest.parents_S).to(device)
        tokens_T = torch.from_numpy(steps.token_ids_S).to(device)
        tokens_TE = nn.functional.embedding(tokens_T, policy.get_input_embeddings().weight.detach())
        before_TE = hidden_SE.detach()[parents_S[slots_T]]
        both = torch.cat([self.hidden_layernorm(before_TE), self.token_layernorm(tokens_TE)], dim=-1)
        inputs = self.input_proj(both)[None]
        depths = torch.from_numpy(steps.depths_S).to(device)[None]
        output = self.mtp_block(
            inputs,
            attention_mask=None,
            position_ids=depths,
            position_embeddings=policy.base_model.rotary_emb(inputs, depths),
            tree_attention=WholeForest(plan_attention(steps)),
        )
        return self.final_layernorm(output[0]), slots_T

    def save(self, folder: Path, policy_digest: str) -> None:
        """Write `draft/` into a policy's folder."""
        draft = folder / DRAFT_FOLDER
        draft.mkdir(parents=True, exist_ok=True)
        weights = {DRAFT_PREFIX + _short(name): weight.contiguous() for name, weight in self.state_dict().items()}
        save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
        config = {"architectures": [DRAFT_ARCHITECTURE], "num_nextn_predict_layers": 1, "policy_digest": policy_digest}
        (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    def load(self, folder: Path) -> None:
        """Take what `save` wrote. Raises StepRefused when it doesn't fit."""
        path = folder / DRAFT_FOLDER / "model.safetensors"
        try:
            stored = {name.removeprefix(DRAFT_PREFIX): weight for name, weight in load_file(path).items()}
            self.load_state_dict({name: stored[_short(name)] for name in self.state_dict()})
        except (OSError, KeyError, RuntimeError, SafetensorError) as error:
            raise StepRefused(f"draft head in {folder} can't be loaded: {error}") from error


def has_draft(folder: Path) -> bool:
    """Whether a model folder brings a draft head."""
    return (folder / DRAFT_FOLDER / "model.safetensors").is_file()


def _unit(norm: nn.Module) -> Any:
    """A norm of the policy's kind with weights of one."""
    fresh: Any = copy.deepcopy(norm)
    nn.init.ones_(fresh.weight)
    return fresh


def _short(name: str) -> str:
    # MiMo's checkpoints name the layer's parts without the layer.
    return name.removeprefix("mtp_block.")
