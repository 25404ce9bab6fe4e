"""`forgerl data`: SQL over the pool and exports of it, for which nothing has to be up; and imports into a run."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from services.cli.errors import UsageError
from services.cli.pool.export import export_jsonl, export_parquet, export_recorded
from services.cli.pool.importing import read_file, submissions
from services.cli.pool.places import PoolPlaces
from services.cli.pool.query import read_tables, readable, run_query, tables_of
from services.cli.pool.reading import Pool
from services.client import Client

EXPORTS = {"parquet": export_parquet, "jsonl": export_jsonl, "recorded": export_recorded}
_EVERY = 200
_TABLE_ROWS = 1_000
"""A table is laid out as a whole before its first line is printed, and nobody reads further."""


def query_data(instance: str | None, sql: str, runs: list[str], *, as_json: bool) -> None:
    """Prints the first thousand rows as a table, and how many there are; or all, as one JSON object a line."""
    sql = readable(sql)
    names = tables_of(sql)
    pool = Pool(PoolPlaces.of(instance))

    async def read():
        return await read_tables(pool, runs or await pool.runs(), names, _show_progress)

    answer = run_query(sql, asyncio.run(read()), None if as_json else _TABLE_ROWS)
    _tell_pruned(pool, "turns and tokens lack them")
    if as_json:
        for row in answer.rows:
            print(json.dumps(dict(zip(answer.columns, row, strict=True)), default=_plain))  # noqa: T201
        return
    table = Table(box=None)
    for column in answer.columns:
        table.add_column(column, overflow="fold")
    for row in answer.rows:
        table.add_row(*(_cell(value) for value in row))
    Console(highlight=False).print(table)
    if answer.total > len(answer.rows):
        said = f"forgerl: {len(answer.rows)} of {answer.total} rows are shown; --json prints all"
        Console(stderr=True, highlight=False).print(said, soft_wrap=True)


def export_data(instance: str | None, run: str, out: Path, kind: str) -> None:
    """Writes OUT whole or not at all."""
    if kind not in EXPORTS:
        raise UsageError(f"--format: given {kind!r}; allowed {', '.join(EXPORTS)}")
    pool = Pool(PoolPlaces.of(instance))
    written = asyncio.run(EXPORTS[kind](pool, run, out, _show_progress))
    counts = ", ".join(f"{count} {name}" for name, count in sorted(written.items()))
    Console(highlight=False).print(f"forgerl: {run} is at {out}: {counts}", soft_wrap=True)
    _tell_pruned(pool, "the export lacks them")


def import_data(instance: str | None, run: str, file: Path, *, whole_only: bool) -> None:
    """Submits every episode of the file; those that are there already are counted."""
    with Client(instance) as client:
        lines = read_file(file, client.run(run).spec, whole_only=whole_only)
        wanted = asyncio.run(submissions(PoolPlaces.of(instance), run, lines))
        created = 0
        for first in range(0, len(wanted), _EVERY):
            created += sum(answer.created for answer in client.submit(wanted[first : first + _EVERY]))
            _show_progress(min(first + _EVERY, len(wanted)), len(wanted))
    Console(highlight=False).print(
        f"forgerl: {created} episodes of {file} are in {run}, {len(wanted) - created} were there already",
        soft_wrap=True,
    )


def _tell_pruned(pool: Pool, and_so: str) -> None:
    if not pool.pruned:
        return
    last = max(row.pruned_at_s or 0.0 for row in pool.pruned)
    when = datetime.fromtimestamp(last, UTC).isoformat(sep=" ", timespec="seconds")
    said = f"forgerl: {len(pool.pruned)} trajectories were pruned, the last at {when}; {and_so}"
    Console(stderr=True, highlight=False).print(said, soft_wrap=True)


def _show_progress(done: int, total: int) -> None:
    if done % _EVERY == 0:
        Console(stderr=True, highlight=False).print(f"forgerl: {done} of {total} trajectories", style="dim")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
