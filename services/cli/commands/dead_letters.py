"""dlq list, dlq replay."""

from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption

ServiceArgument = Annotated[str, typer.Argument(metavar="[SERVICE]", help="Only of this consumer; default: all.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("list")(list_dead)
    app.command("replay")(replay)


def list_dead(service: ServiceArgument = "", instance: InstanceOption = None) -> None:
    """Parked events, with the error that parked each."""
    from services.cli.dead_letter_command import list_dead_letters

    list_dead_letters(instance, service)


def replay(service: ServiceArgument = "", instance: InstanceOption = None) -> None:
    """Give parked events to their consumer once more, in order."""
    from services.cli.dead_letter_command import replay_dead_letters

    replay_dead_letters(instance, service)
