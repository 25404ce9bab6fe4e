"""Runs the comparison; see the package."""

import argparse
import json
import platform
import sys
from collections.abc import Callable

import torch
from rich.console import Console

from loadtests.tree.measure import Options, Row, rows_of
from loadtests.tree.memory import MemoryRow, as_json, memory_rows
from loadtests.tree.model import FEED_FORWARD, HEAD_WIDTH, HEADS, KEY_HEADS, LAYERS, WIDTH
from loadtests.tree.recorded import recorded_run, recorded_step
from loadtests.tree.workloads import (
    VOCABULARY,
    Workload,
    append_only,
    context_rewrites,
    little_sharing,
    no_sharing,
    star,
    thinking_stripped,
)

WORKLOADS: tuple[Callable[[int], Workload], ...] = (
    star,
    append_only,
    context_rewrites,
    thinking_stripped,
    little_sharing,
    no_sharing,
    recorded_step,
    recorded_run,
)

BEYOND = "trees beyond memory"

BUDGET_TOKENS = 8192
"""Slots computed at once: larger batches fall out of this machine's caches, ours and the baseline's alike."""


def main() -> None:
    """One line a row while it runs; with --json the last line is all of it.

    The exit code is 1 where anything wanted is missed; stderr names it.
    """
    parser = argparse.ArgumentParser(prog="python -m loadtests.tree", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object, last")
    parser.add_argument(
        "--only", default="", metavar="WORD", help=f"rows whose name has this in it; {BEYOND}: the last"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each baseline is run as a whole, at least")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(highlight=False, width=200)
    console.print(_setting())
    rows: list[Row] = []
    for make in WORKLOADS:
        workload = make(given.seed)
        if given.only in workload.name:
            for row in rows_of(workload, Options(given.seed, given.rounds, BUDGET_TOKENS)):
                rows.append(row)
                console.print(_line(row))
    beyond: list[MemoryRow] = []
    for row in memory_rows(None) if given.only in BEYOND else ():
        beyond.append(row)
        console.print(row)
    if given.json:
        trees = [as_json(row) for row in beyond]
        print(json.dumps({"setting": _setting(), "rows": [row.as_json() for row in rows], BEYOND: trees}), flush=True)
    missed = [f"{row.workload}: {text}" for row in rows for text in row.missed]
    missed += [f"{BEYOND}, {type(row).__name__}: {row.missed}" for row in beyond if row.missed]
    if missed:
        sys.exit("\n".join(missed))


def _setting() -> str:
    return (
        f"Qwen3, width {WIDTH}, {LAYERS} layers, {HEADS} heads of {HEAD_WIDTH} over {KEY_HEADS}, feed-forward "
        f"{FEED_FORWARD}, vocabulary {VOCABULARY}; float32, one thread, processor time; torch {torch.__version__}, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    )


def _line(row: Row) -> str:
    times = row.times
    return (
        f"{row.workload}: theory {row.theory:.2f}x, measured {row.speedup:.2f}x ({times.low:.2f} to {times.high:.2f}, "
        f"{times.pairs} pairs; by wall clock {times.wall:.2f}x), {row.ratio:.3f} of {row.ratio_of} (wanted "
        f"{row.wanted}); "
        f"{row.baseline} {times.baseline_s:.2f} s, ours {times.ours_s:.2f} s ({row.way}); "
        f"tokens {row.tokens_before} -> {row.tokens_after}; error {row.max_rel_err:.1e}; "
        f"memory {row.peak_mem_ratio:.2f}x"
    )


if __name__ == "__main__":
    main()
