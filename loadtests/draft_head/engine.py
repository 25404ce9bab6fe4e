"""Tokens a verification in a real vLLM: python -m loadtests.draft_head.engine ORDER.json; the answer is a JSON line.

ORDER: {"policies": [folder, …], "tokens": guesses a verification, "prompts": [[id, …], …], "max_tokens": n}. The
engine starts once, without a head, and swaps through the policies as the sidecar has it do. It needs no service.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be measured; see the module."""

    policies: Sequence[str]
    tokens: int
    prompts: Sequence[Sequence[int]]
    max_tokens: int
    end: int


def measure(order: Order) -> list[dict[str, float]]:
    """Run the order in a process of its own: a line a policy with `verifications`, `accepted`, `tokens_per_verify`."""
    with tempfile.TemporaryDirectory(prefix="draft-engine-") as scratch:
        path = Path(scratch) / "order.json"
        path.write_text(json.dumps(asdict(order)))
        paths = os.pathsep.join([str(ROOT), str(ROOT / "proto" / "gen")])
        env = {
            **os.environ,
            "PYTHONPATH": paths,
            "FORGERL_ENGINE_MODEL": order.policies[0],
            "FORGERL_ENGINE_SPECULATIVE_TOKENS": str(order.tokens),
            "FORGERL_DATA_DIR": scratch,
            "FORGERL_TOKEN": "none",
            "FORGERL_SECRET": "none",
        }
        command = [sys.executable, "-m", "loadtests.draft_head.engine", str(path)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the engine failed: {done.stdout[-2000:]}{done.stderr[-3000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """The process that `measure` starts."""
    from services.inference.engine import engine_env
    from services.inference.settings import EngineSettings
    from services.kernel.settings import load_settings

    order = Order(**json.loads(Path(sys.argv[1]).read_text()))
    settings = load_settings(EngineSettings)
    os.environ.update(engine_env(settings) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    # Imported late: it reads the environment when it is imported.
    from services.inference.speculation import install, speculative_config
    from services.inference.vllm_start import prepare

    prepare()
    install()
    from vllm import LLM

    llm: Any = LLM(
        model=str(settings.model),
        dtype="float32",
        enforce_eager=True,
        block_size=settings.block_tokens,
        generation_config="vllm",
        disable_log_stats=False,
        distributed_executor_backend="services.inference.in_process.InProcessExecutor",
        worker_extension_cls="services.inference.policy_worker.PolicyWorker",
        speculative_config=json.loads(speculative_config(order.tokens)),
    )
    sys.stdout.write("\n" + json.dumps([_one(llm, folder, order) for folder in order.policies]) + "\n")


def _one(llm: Any, folder: str, order: Order) -> dict[str, float]:
    from vllm import SamplingParams

    digest = json.loads((Path(folder) / "draft" / "config.json").read_text())["policy_digest"]
    for answer in llm.collective_rpc("load_policy", args=(folder, digest)):
        assert answer == {"loaded": True, "why_not": "", "no_draft": ""}, answer
    llm.reset_prefix_cache()
    before = _counters(llm)
    sampling = SamplingParams(
        temperature=1.0, max_tokens=order.max_tokens, detokenize=False, stop_token_ids=[order.end], ignore_eos=True
    )
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in order.prompts]
    llm.generate(prompts, sampling, use_tqdm=False)
    after = _counters(llm)
    verified, accepted = (after[name] - before[name] for name in ("num_drafts", "num_accepted_tokens"))
    return {"verifications": verified, "accepted": accepted, "tokens_per_verify": 1 + accepted / verified}


def _counters(llm: Any) -> Mapping[str, float]:
    prefix = "vllm:spec_decode_"
    return {m.name.removeprefix(prefix): float(getattr(m, "value", 0.0)) for m in llm.get_metrics() if prefix in m.name}


if __name__ == "__main__":
    main()
