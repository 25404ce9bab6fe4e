"""policy list, policy export."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption, RunArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("list")(list_policies)
    app.command("export")(export)


def list_policies(run: RunArgument, instance: InstanceOption = None) -> None:
    """A run's policies that are still kept."""
    from services.cli.policy_command import list_policies as show

    show(instance, run)


def export(
    run: RunArgument,
    step: Annotated[int, typer.Argument(metavar="STEP", min=0, help="The policy's step; 0 is where it began.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that isn't there yet.")],
    instance: InstanceOption = None,
) -> None:
    """Write a policy as an ordinary Hugging Face directory."""
    from services.cli.policy_command import export_policy

    export_policy(instance, run, step, out)
