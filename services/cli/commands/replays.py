"""replay, diff: what the recorded queues say, with everything down."""

from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption, JsonOption, RunArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(replay)
    app.command()(diff)


def replay(
    run: RunArgument,
    policy: Annotated[
        str | None, typer.Option("--policy", help="windowed_fifo, strict_fifo, greedy or version_window.")
    ] = None,
    window: Annotated[str | None, typer.Option("--window", help="A share of N such as 0.1, or auto.")] = None,
    as_json: JsonOption = False,
    instance: InstanceOption = None,
) -> None:
    """Decide a run anew from its record and compare; with --policy or --window: what would have happened."""
    from services.cli.replay_command import replay_run, what_would_have_happened

    if policy or window:
        what_would_have_happened(instance, run, (policy, window), as_json=as_json)
    else:
        replay_run(instance, run, as_json=as_json)


def diff(
    run: RunArgument,
    other: Annotated[str, typer.Argument(metavar="RUN2", help="Id of the run to compare with.")],
    as_json: JsonOption = False,
    instance: InstanceOption = None,
) -> None:
    """Two runs side by side: settings, totals, curves, and where their queues part."""
    from services.cli.diff_command import diff_runs

    diff_runs(instance, run, other, as_json=as_json)
