"""Ranks against one process: python -m loadtests.distributed --json [--ranks 1,2,4]; the last line is JSON.

Every size is started by torchrun, trains the same rows from the same weights, saves, and is loaded by every other size.
Exit code 1 where a gradient differs by more than 1e-6, or a checkpoint isn't loaded bit by bit.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

WORKER = "loadtests.distributed_rank"
DEADLINE_S = 900.0
ALLOWED_ERROR = 1e-6


def make_model(folder: Path, width: int, layers: int) -> None:
    """A Qwen3 with a tokenizer, drawn afresh."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=width // 8,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    words = {f"w{i}": i for i in range(4095)} | {"[UNK]": 4095}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")))
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(folder)


def torchrun(ranks: int, *arguments: Path) -> None:
    """Run the worker at so many ranks. Raises CalledProcessError, TimeoutExpired."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command += ["-m", WORKER, *map(str, arguments)]
    subprocess.run(command, env=environment, timeout=DEADLINE_S, check=True, stdout=sys.stderr)


def apart(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Relative difference by norm."""
    difference = sum(float((ours[name].double() - tensor.double()).pow(2).sum()) for name, tensor in theirs.items())
    return math.sqrt(difference / sum(float(tensor.double().pow(2).sum()) for tensor in theirs.values()))


def trained_row(ranks: int, out: Path, one: dict[str, Any]) -> dict[str, Any]:
    """What a size measured, against one process."""
    seen = torch.load(out / "trained.pt")
    lines = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    weights = set(one["gradient"])
    after, before = ({n: t for n, t in s["state"].items() if n in weights} for s in (seen, one))
    return {
        "ranks": ranks,
        "loss_error": abs(seen["loss"] / one["loss"] - 1),
        "gradient_error": apart(seen["gradient"], one["gradient"]),
        "weights_error": apart(after, before),
        "parameter_bytes": max(line["parameter_bytes"] for line in lines),
        "optimiser_bytes": max(line["optimiser_bytes"] for line in lines),
        "peak_rss_bytes": max(line["peak_rss_bytes"] for line in lines),
        "largest_share": max(line["tokens"] for line in lines) / sum(line["tokens"] for line in lines),
        "step_s": max(line["step_s"] for line in lines),
    }


def loads_equal(model: Path, saved: Path, ranks: int, out: Path) -> bool:
    """Whether another number of ranks loads exactly what was saved."""
    out.mkdir()
    torchrun(ranks, model, out, saved / "checkpoint")
    loaded, state = torch.load(out / "loaded.pt"), torch.load(saved / "trained.pt")["state"]
    return loaded.keys() == state.keys() and all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def measure(sizes: list[int], width: int, layers: int) -> dict[str, Any]:
    """Every size trained, and every size's checkpoint loaded by every other."""
    with tempfile.TemporaryDirectory(prefix="forgerl-distributed-") as scratch:
        folder = Path(scratch)
        make_model(folder / "model", width, layers)
        outs = {ranks: folder / f"ranks-{ranks}" for ranks in sizes}
        for ranks, out in outs.items():
            out.mkdir()
            torchrun(ranks, folder / "model", out)
        one = torch.load(outs[sizes[0]] / "trained.pt")
        rows = [trained_row(ranks, out, one) for ranks, out in outs.items()]
        loads = [
            {"saved_by": a, "loaded_by": b, "equal": loads_equal(folder / "model", out, b, folder / f"{a}-{b}")}
            for a, out in outs.items()
            for b in sizes
            if a != b
        ]
        parameters = sum(tensor.numel() for tensor in one["gradient"].values())
    return {"parameters": parameters, "rows": rows, "loads": loads}


def main() -> None:
    """See module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print only the numbers, as the last line")
    parser.add_argument("--ranks", default="1,2,4", help="the first is what the others are compared with")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    given = parser.parse_args()
    result = measure([int(size) for size in given.ranks.split(",")], given.width, given.layers)
    if not given.json:
        for row in [*result["rows"], *result["loads"]]:
            print("  ".join(f"{name} {value:.3g}" for name, value in row.items()))
    print(json.dumps(result))
    exact = all(row["gradient_error"] <= ALLOWED_ERROR for row in result["rows"])
    if not exact or not all(load["equal"] for load in result["loads"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
