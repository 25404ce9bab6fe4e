"""run, resume, stop, rm, runs, watch: training runs."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption, RunArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (run, resume, stop, runs, watch):
        app.command()(command)
    app.command("rm")(remove)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The run file.")],
    name: Annotated[str | None, typer.Option("--name", help="Id of the run: a-z, 0-9, -; else the file's.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Another end than the file's.")] = None,
    instance: InstanceOption = None,
) -> None:
    """Train by a run file, feed it tasks, and show it until it ends. Ctrl-C leaves the run; `resume` takes it up."""
    from services.cli.run_command import start_run

    start_run(instance, file, name, steps)


def resume(
    run: RunArgument,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="A later end, for a run that has ended.")] = None,
    instance: InstanceOption = None,
) -> None:
    """Take a run up again: feed it, or give it a later end."""
    from services.cli.run_command import resume_run

    resume_run(instance, run, steps)


def stop(run: RunArgument, instance: InstanceOption = None) -> None:
    """End a run now."""
    from services.cli.run_command import stop_run

    stop_run(instance, run)


def remove(run: RunArgument, instance: InstanceOption = None) -> None:
    """Forget an ended run and free what it kept."""
    from services.cli.run_command import remove_run

    remove_run(instance, run)


def runs(instance: InstanceOption = None) -> None:
    """All runs."""
    from services.cli.run_command import list_runs

    list_runs(instance)


def watch(run: RunArgument, instance: InstanceOption = None) -> None:
    """Reward, window, mix, staleness and engines, live."""
    from services.cli.run_command import watch_run

    watch_run(instance, run)
