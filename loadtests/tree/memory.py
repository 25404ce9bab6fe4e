"""Memory and time of trees beyond the budget: `python -m loadtests.tree.memory [--json]`, one thread, a narrow model.

Three questions. What a single path takes, by a formula that is fitted at 8k and 16k tokens, checked at 32k and read at
128k. What an episode's tree of 200k tokens takes that has paths of up to 32k, against its longest path alone. What
cutting costs in time, against the same tree in one piece. Bytes are those of tensors, counted, at their peak.
"""

# torch's and transformers' modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from loadtests.tree.checks import peak_bytes
from loadtests.tree.steps import Linear, library_step
from loadtests.tree.workloads import VOCABULARY, Sample
from services.trainer.tree import passes
from services.trainer.tree.forest import build_forest
from services.trainer.tree.head import Targets
from services.trainer.tree.passes import PassOptions, gradient_pass

WIDTH, FEED_FORWARD, LAYERS, HEAD_WIDTH = 64, 192, 2, 32
BUDGET_TOKENS = 4096
CHECKED = (8_192, 16_384, 32_768)
WANTED_PATH = 131_072
PAIRS = 5
MOST_RATIO = 1.1
MOST_OFF = 0.05


@dataclass(frozen=True, slots=True)
class PathRow:
    """Peak bytes of one path, measured and by the formula."""

    tokens: int
    recompute: bool
    measured_bytes: int
    formula_bytes: int

    @property
    def missed(self) -> str:
        """What is wanted and wasn't reached."""
        off = abs(self.formula_bytes / self.measured_bytes - 1) if self.measured_bytes else 0.0
        return f"formula {off:.3f} off, wanted {MOST_OFF} at most" if off > MOST_OFF else ""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A tree's peak against its longest path alone: by the library in one piece, and by ours."""

    tokens: int
    longest: int
    recompute: bool
    tree_bytes: int
    library_path_bytes: int
    ratio: float

    @property
    def missed(self) -> str:
        """What is wanted and wasn't reached."""
        return f"memory {self.ratio:.2f}, wanted {MOST_RATIO} at most" if self.ratio > MOST_RATIO else ""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Seconds cut over seconds whole, the median of interleaved pairs, and the pairs' range."""

    tokens: int
    longest: int
    pieces: int
    ratio: float
    low: float
    high: float

    @property
    def missed(self) -> str:
        """What is wanted and wasn't reached."""
        return f"time {self.ratio:.3f}, wanted {MOST_RATIO} at most" if self.ratio > MOST_RATIO else ""


MemoryRow = PathRow | TreeRow | TimeRow


def narrow_model() -> Any:
    """A Qwen3 of 64 wide, in float32."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=HEAD_WIDTH,
        tie_word_embeddings=False,
        max_position_embeddings=WANTED_PATH,
    )
    config._attn_implementation = "sdpa"
    return Qwen3ForCausalLM(config).train()


def path(tokens: int, seed: int = 0) -> Sample:
    """One path; a quarter of it is trained."""
    rng = np.random.default_rng(seed)
    return Sample(
        rng.integers(0, VOCABULARY, tokens), rng.permuted(np.arange(tokens) % 4 == 3) & (np.arange(tokens) > 0)
    )


def episode(tokens: int, longest: int, seed: int = 0) -> list[Sample]:
    """Branches of one episode: a path as long as may be, and others that leave it early and grow long themselves."""
    rng = np.random.default_rng(seed)
    trunk = path(longest, seed)
    samples, left, length = [trunk], tokens - longest, longest * 7 // 16
    while left > 0:
        own = path(min(length, left), int(rng.integers(1 << 30)))
        cut = int(rng.integers(longest // 16, longest - length))
        ids_T = np.concatenate([trunk.ids_T[:cut], own.ids_T])
        samples.append(Sample(ids_T, np.concatenate([np.zeros(cut, bool), own.trained_T])))
        left -= len(own.ids_T)
    return samples


def train(model: Any, samples: Sequence[Sample], recompute: bool = False) -> int:
    """One forward and backward; answers the pieces."""
    forest = build_forest([sample.ids_T for sample in samples])
    slots_N = forest.slots_N[np.concatenate([sample.trained_T for sample in samples])]
    ones_N = np.ones(len(slots_N))
    targets = Targets(forest.parents_S[slots_N], forest.token_ids_S[slots_N], ones_N, ones_N)
    objective = Linear(torch.linspace(-1, 1, len(slots_N)))
    return gradient_pass(model, forest, targets, objective, PassOptions(BUDGET_TOKENS, recompute, local=True)).pieces


def path_rows(model: Any, recompute: bool) -> list[PathRow]:
    """The formula is a line through the first two lengths: fixed bytes, and bytes a token."""
    peaks = [peak_bytes(model, lambda n=n: train(model, [path(n)], recompute)) for n in CHECKED]
    slope = (peaks[1] - peaks[0]) / (CHECKED[1] - CHECKED[0])
    fixed = peaks[0] - slope * CHECKED[0]
    rows = [PathRow(n, recompute, peak, round(fixed + slope * n)) for n, peak in zip(CHECKED, peaks, strict=True)]
    return [*rows, PathRow(WANTED_PATH, recompute, 0, round(fixed + slope * WANTED_PATH))]


def tree_row(model: Any, tokens: int, longest: int, recompute: bool) -> TreeRow:
    """The longest path alone is the library's, all of it at once, without the logits of untrained tokens."""
    samples = episode(tokens, longest)
    alone = samples[0]
    weights = [torch.linspace(-1, 1, longest)]
    library = peak_bytes(model, lambda: library_step(model, [alone], weights, longest))
    tree = peak_bytes(model, lambda: train(model, samples, recompute))
    return TreeRow(tokens, longest, recompute, tree, library, tree / library)


def time_row(model: Any, tokens: int, longest: int) -> TimeRow:
    """Cut by the budget against one piece, on the same tree."""
    samples, ratios, pieces = episode(tokens, longest), list[float](), 0
    for pair in range(PAIRS):
        taken_s = dict.fromkeys((BUDGET_TOKENS, tokens), 0.0)
        # Which comes first alternates.
        for budget in sorted(taken_s, reverse=bool(pair % 2)):
            with patch.object(passes, "working_tokens", lambda *_, budget=budget: budget):
                before_s = time.process_time()
                made = train(model, samples)
                taken_s[budget] = time.process_time() - before_s
            pieces = max(pieces, made)
        ratios.append(taken_s[BUDGET_TOKENS] / taken_s[tokens])
    return TimeRow(tokens, longest, pieces, statistics.median(ratios), min(ratios), max(ratios))


def memory_rows(only: str | None, *, quick: bool = False) -> Iterator[MemoryRow]:
    """All rows, or one question's, as they come."""
    model, part = narrow_model(), 8 if quick else 1
    if only in (None, "path"):
        for recompute in (False, True):
            yield from path_rows(model, recompute)
    if only in (None, "tree"):
        for recompute in (False, True):
            yield tree_row(model, 200_000 // part, 32_768 // part, recompute)
    if only in (None, "time"):
        yield time_row(model, 50_000 // part, 8_192 // part)


def as_json(row: MemoryRow) -> dict[str, Any]:
    """Plain values."""
    return {"kind": type(row).__name__, **asdict(row), "missed": row.missed}


def main() -> None:
    """A line a row; with --json the last line is all of it. The exit code is 1 where anything wanted is missed."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.tree.memory", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object, last")
    parser.add_argument("--quick", action="store_true", help="trees of an eighth of the size")
    parser.add_argument("--only", choices=("path", "tree", "time"), help="one of the three questions")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[MemoryRow] = []
    for row in memory_rows(given.only, quick=given.quick):
        rows.append(row)
        print(row, flush=True)
    if given.json:
        print(json.dumps({"rows": [as_json(row) for row in rows]}), flush=True)
    missed = [f"{type(row).__name__}: {row.missed}" for row in rows if row.missed]
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
