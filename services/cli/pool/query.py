"""SQL over the pool, in DuckDB. Only the tables that the query names are read; nothing outside the pool can be.

It refuses to write: DuckDB's access to files and to the network is off.
"""

# duckdb's and pyarrow's types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from services.cli.errors import UsageError
from services.cli.pool.reading import Pool
from services.cli.pool.tables import FROM_TRAJECTORIES, SCHEMAS, index_table, token_table, turn_table

Progress = Callable[[int, int], None]
_COUNTED_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns, and the first of `total` rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    total: int


def readable(sql: str) -> str:
    """An argument as UTF-8, whatever the terminal's locale took its bytes for. Raises UsageError."""
    try:
        return sql.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError as error:
        raise UsageError("query: given bytes that are no UTF-8; allowed SQL in UTF-8") from error


def tables_of(sql: str) -> set[str]:
    """The pool's tables that a query names. Raises UsageError for a query that isn't one, or names another table."""
    try:
        named = set(duckdb.connect().get_table_names(sql))
    except duckdb.Error as error:
        raise UsageError(f"query: {_first_line(error)}") from error
    unknown = sorted(name for name in named if name not in SCHEMAS)
    if unknown:
        raise UsageError(f"query: table {unknown[0]!r} is not known; allowed {', '.join(SCHEMAS)}")
    return named


async def read_tables(pool: Pool, runs: Sequence[str], names: set[str], progress: Progress) -> dict[str, pa.Table]:
    """The named tables over the runs. `progress` hears of trajectories: (read, in all). Raises CommandError."""
    parts: dict[str, list[pa.Table]] = {name: [SCHEMAS[name].empty_table()] for name in names}
    indexes = [await pool.index(run_id) for run_id in runs]
    for index in indexes:
        for name in names - set(FROM_TRAJECTORIES):
            parts[name].append(index_table(name, index))
    if names & set(FROM_TRAJECTORIES):
        total, done = sum(row.readable for index in indexes for row in index.episodes.values()), 0
        for index in indexes:
            async for row, trajectory in pool.trajectories(list(index.episodes.values())):
                done += 1
                progress(done, total)
                if "turns" in names:
                    parts["turns"].append(turn_table(row, trajectory))
                if "tokens" in names:
                    parts["tokens"].append(token_table(row, trajectory))
    return {name: pa.concat_tables(some) for name, some in parts.items()}


def run_query(sql: str, tables: dict[str, pa.Table], limit: int | None = None) -> Answer:
    """The first `limit` rows, or all; those beyond are only counted. Raises UsageError with DuckDB's first line."""
    connection = duckdb.connect(config={"enable_external_access": "false"})
    for name, table in tables.items():
        connection.register(name, table)
    try:
        result = connection.execute(sql)
        columns = [column[0] for column in result.description or ()]
        rows = result.fetchall() if limit is None else result.fetchmany(limit)
        total = len(rows)
        while limit is not None and (more := len(result.fetchmany(_COUNTED_AT_ONCE))):
            total += more
        return Answer(columns, rows, total)
    except duckdb.Error as error:
        raise UsageError(f"query: {_first_line(error)}") from error
    finally:
        connection.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
