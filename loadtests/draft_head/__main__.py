"""Frozen head against co-trained head: python -m loadtests.draft_head [--json]; the last line is JSON with --json.

Exit code 1 where the co-trained head keeps less than 0.95 of its start while the policy's KL from its start lies
between 0.2 and 0.7 nats a token, or where no step lies there.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from loadtests.draft_head.study import Plan, Row, Study, kept_share

WANTED = 0.95
COLUMNS = "step, KL from start, entropy, reward, frozen: accepted, tokens/verify, co-trained: accepted, tokens/verify"


def main() -> None:
    """See the module."""
    given = _parser().parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    plan = Plan(
        given.model, given.move, given.steps, given.every, given.learning_rate, given.to_kl, given.top_k,
        given.head_rate, given.warm_batches, given.warm_rounds, given.seed,
    )  # fmt: skip
    out = sys.stderr if given.json else sys.stdout

    def tell(line: str) -> None:
        print(line, file=out, flush=True)

    with tempfile.TemporaryDirectory(prefix="draft-head-") as scratch:
        study = Study(plan, Path(scratch))
        study.warm()
        tell(f"| {COLUMNS.replace(', ', ' | ')} |\n{'|---' * 8}|")
        rows = study.run(given.engine_steps, lambda row: tell(_line(row)))
        measured = [line for tokens in given.engine_guesses for line in study.in_engine(tokens, given.engine_repeats)]
    shares = {kind: kept_share(rows, kind) for kind in ("frozen", "cotrained")}
    tell(_summary(measured, shares))
    if given.json:
        figures: dict[str, Any] = {
            "plan": asdict(plan) | {"model": str(plan.model)},
            "rows": [asdict(row) for row in rows],
            "engine": measured,
            "kept_share": shares,
        }
        print(json.dumps(figures))
    if shares["cotrained"] is None or shares["cotrained"] < WANTED:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as the last line")
    parser.add_argument("--model", type=Path, default=Path("examples/models/tiny-qwen3"))
    parser.add_argument("--move", choices=["drift", "reward", "rest"], default="drift")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5, help="steps from one exact figure to the next")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of the policy")
    parser.add_argument(
        "--to-kl", type=float, default=0.7, help="where the drift's last step is to be, in nats a token"
    )
    parser.add_argument("--top-k", type=int, default=16)
    parser.add_argument("--head-rate", type=float, default=1e-3, help="of the head")
    parser.add_argument("--warm-batches", type=int, default=24)
    parser.add_argument("--warm-rounds", type=int, default=4)
    parser.add_argument(
        "--engine-steps", type=int, nargs="*", default=[0, 30, 60], help="policies to measure in a real vLLM too"
    )
    parser.add_argument("--engine-guesses", type=int, nargs="*", default=[1], help="guesses a verification there")
    parser.add_argument("--engine-repeats", type=int, default=8, help="answers to each task there")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _line(row: Row) -> str:
    before = f"| {row.step} | {row.moved.kl_from_start:.3f} | {row.moved.entropy:.3f} | {row.reward:.2f} "
    heads = [f"| {g.acceptance:.3f} | {g.tokens_per_verify:.3f} " for g in (row.frozen, row.cotrained)]
    return before + "".join(heads) + "|"


def _summary(measured: list[dict[str, Any]], shares: dict[str, float | None]) -> str:
    lines = [
        f"engine: step {line['step']}, {line['head']}, {line['guesses']} guesses: "
        f"{line['tokens_per_verify']:.3f} tokens/verify over {line['verifications']:.0f} verifications"
        for line in measured
    ]
    for kind, share in shares.items():
        told = "no step in the band" if share is None else f"{share:.3f} of its start"
        lines.append(f"least tokens/verify with KL in 0.2..0.7, {kind}: {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
