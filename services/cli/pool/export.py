"""The pool as files: Parquet, a file a table; JSONL in chat form, a line a branch; or JSONL with ids and
log-probabilities, a line an episode. Whole or not at all.

It refuses a place that is taken.
"""

# pyarrow ships no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUnknownParameterType=false

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from services.cli.errors import CommandError, UsageError
from services.cli.pool.index import EpisodeRow
from services.cli.pool.lines import to_line
from services.cli.pool.query import Progress, read_tables
from services.cli.pool.reading import Pool
from services.cli.pool.tables import SCHEMAS
from services.contract.trajectory import Trajectory, branches


async def export_parquet(pool: Pool, run_id: str, out: Path, progress: Progress) -> dict[str, int]:
    """Write OUT/<table>.parquet; returns the rows of each. Raises UsageError, CommandError."""
    partial = _partial(out)
    tables = await read_tables(pool, [run_id], set(SCHEMAS), progress)
    try:
        partial.mkdir(parents=True)
        for name, table in tables.items():
            parquet.write_table(table, partial / f"{name}.parquet", compression="zstd")
        partial.replace(out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CommandError(f"export to {out}: {error}") from error
    return {name: table.num_rows for name, table in tables.items()}


async def export_recorded(pool: Pool, run_id: str, out: Path, progress: Progress) -> dict[str, int]:
    """Write a line an episode, whole: what `data import` takes in. Evaluations and failed episodes are left out."""
    partial = _partial(out)
    index = await pool.index(run_id)
    rows = [row for row in index.episodes.values() if row.kind == "train" and row.performance is not None]
    done = 0
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            async for row, line in pool.recorded(rows):
                file.write(to_line(line, {"episode_id": row.episode_id, "run_id": run_id}) + "\n")
                done += 1
                progress(done, len(rows))
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CommandError(f"export to {out}: {error}") from error
    return {"episodes": done}


async def export_jsonl(pool: Pool, run_id: str, out: Path, progress: Progress) -> dict[str, int]:
    """Write a line a branch (a path from a root to a leaf): messages in chat form, and what became of the episode."""
    partial = _partial(out)
    index = await pool.index(run_id)
    rows = list(index.episodes.values())
    total, lines, done = sum(row.readable for row in rows), 0, 0
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            async for row, trajectory in pool.trajectories(rows):
                for line in _lines(row, trajectory):
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    lines += 1
                done += 1
                progress(done, total)
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CommandError(f"export to {out}: {error}") from error
    return {"lines": lines, "episodes": done}


def _lines(row: EpisodeRow, trajectory: Trajectory) -> list[dict[str, Any]]:
    nodes = {node.node_id: node for node in trajectory.nodes}
    about = {
        "run_id": row.run_id,
        "episode_id": row.episode_id,
        "group_id": row.group_id,
        "domain": row.domain,
        "kind": row.kind,
        "state": row.state,
        "performance": row.performance,
        "total_reward": row.total_reward,
        "failure_class": row.failure_class,
    }
    return [
        {"messages": [json.loads(nodes[i].message_json) for i in branch if nodes[i].message_json], "branch": number}
        | about
        for number, branch in enumerate(branches(trajectory))
    ]


def _partial(out: Path) -> Path:
    if out.exists():
        raise UsageError(f"{out}: is there already; name a new place")
    partial = out.with_name(f".{out.name}.partial")
    if partial.is_dir():
        shutil.rmtree(partial)
    partial.unlink(missing_ok=True)
    return partial
