"""What vLLM lacks to speculate with a policy's draft head: the head's model, right temperatures on CPU, a switch.

A draft head is one decoder layer of the policy's own kind that reads the policy's last hidden state and the token
after it, and shares embedding and LM head with the policy (the shape of MiMo's multi-token-prediction layer). Its
weights stand in a policy folder's `draft/`; an engine starts without and takes them at each swap. It refuses models
other than Qwen2's and Qwen3's, and heads that weren't trained for the very policy that is loaded.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.contract.policy_folder import DRAFT_ARCHITECTURE, DRAFT_FOLDER, DRAFTED_MODELS


def speculative_config(tokens: int) -> str:
    """vLLM's --speculative-config for that many drafted tokens a verification."""
    # Drafts are sampled, not picked: their probability of being accepted is then sum(min(p, q)), the best there is.
    return json.dumps({"method": "mtp", "num_speculative_tokens": tokens, "draft_sample_method": "probabilistic"})


def install() -> None:
    """Change vLLM in this process; before an engine is made, also where the engine core is forked later."""
    from vllm.model_executor.models import ModelRegistry

    _expand_floats_too()
    _know_draft_heads()
    _listen_to_the_switch()
    ModelRegistry.register_model(DRAFT_ARCHITECTURE, "services.inference.draft_model:ForgeDraftHead")


class Switch:
    """How many tokens the scheduler asks drafts for, whatever the batch's size: all, or none."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.is_on = False

    def __getitem__(self, batch_size: int) -> int:
        return self._tokens if self.is_on else 0


def load_draft(worker: Any, folder: Path, policy_digest: str) -> str:
    """Load the policy's head and speculate from now on; where it can't be, don't, and say why. Empty: it speculates.

    "" too where the engine was started without speculation.
    """
    switch = getattr(worker.vllm_config.speculative_config, "forgerl_switch", None)
    if switch is None:
        return ""
    why_not = unfit(folder, policy_digest)
    # Off while it is loaded: a load that fails half-way leaves no head that is used.
    switch.is_on = False
    if not why_not:
        worker.model_runner.drafter.model.load_head(worker.vllm_config, folder / DRAFT_FOLDER)
        switch.is_on = True
    return why_not


def unfit(folder: Path, policy_digest: str) -> str:
    """Why the head in a policy's folder can't draft for this policy; empty when it can."""
    config = folder / DRAFT_FOLDER / "config.json"
    if not config.is_file():
        return "the policy has no draft head"
    version = json.loads(config.read_text()).get("policy_digest", "")
    if version != policy_digest:
        return f"the draft head was trained for policy {version[:12] or '?'}, not for {policy_digest[:12]}"
    return ""


def _expand_floats_too() -> None:
    # vLLM 0.32 copies floats to integers, expands those, and drops the result: temperatures are whatever lay in memory.
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand


def expand(
    output: Any, input_val: Any, cu_num_tokens: Any, replace_from: float, replace_to: float, *_sizes: Any
) -> None:
    """Entry r of `input_val` once for each token of request r, with one value replaced; all torch tensors."""
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1)).long()
    expanded = input_val.repeat_interleave(counts)
    output.copy_(expanded.masked_fill(expanded == replace_from, replace_to))


def _know_draft_heads() -> None:
    from vllm.config.speculative import SpeculativeConfig

    usual: Callable[[Any], Any] = SpeculativeConfig.hf_config_override

    def hf_config_override(hf_config: Any) -> Any:
        if hf_config.model_type not in DRAFTED_MODELS:
            return usual(hf_config)
        hf_config.model_type = "mtp"
        hf_config.update({"n_predict": 1, "architectures": [DRAFT_ARCHITECTURE]})
        return hf_config

    SpeculativeConfig.hf_config_override = staticmethod(hf_config_override)


def _listen_to_the_switch() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    usual = Scheduler.__init__

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        usual(self, *arguments, **named)
        config = self.vllm_config.speculative_config
        if config is not None and config.method == "mtp":
            config.forgerl_switch = self.dynamic_sd_lookup = Switch(self.num_spec_tokens)

    Scheduler.__init__ = __init__
