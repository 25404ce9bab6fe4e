"""What the engine's worker can do for the sidecar: load a policy's weights, exactly. Called by collective_rpc.

It refuses weights of another shape, or of another tokenizer, than the engine was started with.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from services.contract.policy_folder import MODEL_SHAPE
from services.inference.speculation import load_draft


class PolicyWorker:
    """Mixed into vLLM's worker by --worker-extension-cls."""

    def load_policy(self, folder: str, policy_digest: str = "") -> dict[str, Any]:
        """Load the weights in `folder`, and the draft head beside them where the engine speculates.

        {"loaded": bool, "why_not": str, "no_draft": str}; `no_draft` says why it doesn't speculate with this policy.
        Only while generation is paused.
        """
        worker: Any = self
        home = getattr(worker, "_policy_home", None) or worker.vllm_config.model_config.model
        worker._policy_home = home
        why_not = differs(Path(home), Path(folder))
        if why_not:
            return {"loaded": False, "why_not": why_not, "no_draft": ""}
        worker.model_runner.reload_weights(weights_path=folder)
        repack_tied(worker.model_runner.get_model())
        return {"loaded": True, "why_not": "", "no_draft": load_draft(worker, Path(folder), policy_digest)}


def differs(home: Path, folder: Path) -> str:
    """In what a policy can't be served by an engine that was started from `home`; empty when it can."""
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        return f"{folder}: no config.json with *.safetensors"
    ours, theirs = (json.loads((place / "config.json").read_text()) for place in (home, folder))
    for field in MODEL_SHAPE:
        if ours.get(field) != theirs.get(field):
            return f"{field}: the engine was started with {ours.get(field)}, the policy has {theirs.get(field)}"
    tokenizers = [place / "tokenizer.json" for place in (home, folder)]
    digests = {hashlib.sha256(path.read_bytes()).digest() for path in tokenizers if path.is_file()}
    return "tokenizer.json: differs from the engine's" if len(digests) > 1 else ""


def repack_tied(model: Any) -> None:
    """Give tied output embeddings the weights just loaded: the CPU kernel keeps a packed copy that a reload skips."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    lm_head = getattr(model, "lm_head", None)
    if lm_head is not None and getattr(model.config, "tie_word_embeddings", False):
        dispatch_cpu_unquantized_gemm(lm_head, remove_weight=False)
