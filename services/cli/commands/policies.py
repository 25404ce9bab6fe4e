"""policy list, policy show, policy export."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption, RunArgument

StepArgument = Annotated[
    int, typer.Argument(metavar="STEP", min=0, help="The policy's step; 0 is where the run began.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("list")(list_policies)
    app.command("show")(show)
    app.command("export")(export)


def list_policies(run: RunArgument, as_json: JsonOption = False, instance: InstanceOption = None) -> None:
    """A run's policies: when, reward and mismatch of the step that made them, size, kept or gone."""
    from services.cli.policy_command import list_policies as show

    show(instance, run, as_json=as_json)


def show(run: RunArgument, step: StepArgument, as_json: JsonOption = False, instance: InstanceOption = None) -> None:
    """One policy, with all metrics of the step that made it."""
    from services.cli.policy_command import show_policy

    show_policy(instance, run, step, as_json=as_json)


def export(
    run: RunArgument,
    step: StepArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that isn't there yet.")],
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the peft adapter, where one was trained.")] = False,
    instance: InstanceOption = None,
) -> None:
    """Write a policy as an ordinary Hugging Face directory."""
    from services.cli.policy_command import export_policy

    export_policy(instance, run, step, out, adapter=adapter)
