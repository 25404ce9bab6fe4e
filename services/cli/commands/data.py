"""data query, data export, data import, data prune."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption, RunArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("query")(query)
    app.command("export")(export)
    app.command("import")(import_)
    app.command("prune")(prune)


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="Over episodes, turns, tokens, rewards, advantages, batches.")
    ],
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="Only this run; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a row.")] = False,
    instance: InstanceOption = None,
) -> None:
    """Ask the data pool in SQL (DuckDB)."""
    from services.cli.data_command import query_data

    query_data(instance, sql, run or [], as_json=as_json)


def export(
    run: RunArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A folder (Parquet) or file (JSONL) that isn't there yet.")
    ],
    kind: Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet, jsonl or recorded.")] = "parquet",
    instance: InstanceOption = None,
) -> None:
    """Write a run's episodes as Parquet, as JSONL in chat form, or recorded: what data import takes in."""
    from services.cli.data_command import export_data

    export_data(instance, run, out, kind)


def import_(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL, a recorded episode a line.")],
    whole_groups: Annotated[
        bool, typer.Option("--whole-groups", help="Leave groups out that lack members, instead of refusing the file.")
    ] = False,
    instance: InstanceOption = None,
) -> None:
    """Take episodes that were run elsewhere into a run: verified, scheduled and trained like any other."""
    from services.cli.data_command import import_data

    import_data(instance, run, file, whole_only=whole_groups)


def prune(
    run: RunArgument,
    keep_steps: Annotated[
        int, typer.Option("--keep-steps", min=1, help="Keep what was trained or dropped in the last N steps.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed, at most.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Again after every step, until the run ends.")] = False,
    instance: InstanceOption = None,
) -> None:
    """Have old trajectories and long texts freed, also of a run that goes on. The record of every episode stays."""
    from services.cli.retention_command import prune_data

    prune_data(instance, run, keep_steps, dry_run=dry_run, follow=follow)
