"""up, down, status, logs, doctor: the processes on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import InstanceOption


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (up, down, status, logs, doctor):
        app.command()(command)


def up(
    engines: Annotated[int, typer.Option(help="vLLM engines, each with its sidecar.")] = 1,
    only: Annotated[str | None, typer.Option(help="Only these children of deploy/stack.yaml, by comma.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model whose shape the engines serve.")] = None,
    instance: InstanceOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when all is up; `down` ends it.")] = False,
) -> None:
    """Start everything and keep it running until Ctrl-C."""
    from services.cli.supervisor.opening import UpOptions, only_names
    from services.cli.up import up_attached, up_detached

    options = UpOptions(engines=engines, only=only_names(only), model=model)
    if detach:
        up_detached(instance, options)
    else:
        up_attached(instance, options)


def down(instance: InstanceOption = None) -> None:
    """Stop a stack, also one whose `up` was killed."""
    from services.cli.down import down as run

    run(instance)


def status(instance: InstanceOption = None) -> None:
    """What runs, where, and how often it was started again."""
    from services.cli.status import show_status

    show_status(instance)


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A child, as `forgerl status` names it.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines.")] = 100,
    instance: InstanceOption = None,
) -> None:
    """Lines of one child."""
    from services.cli.status import show_log

    show_log(instance, name, lines, follow=follow)


def doctor(instance: InstanceOption = None) -> None:
    """Check binaries, versions, disk, sandbox; and engine against trainer when the stack is up."""
    from services.cli.doctor.command import run_doctor

    run_doctor(instance)
