"""model init."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("init")(init)
    app.callback()(lambda: None)


def init(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that isn't there yet.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of weights and demonstrations.")] = 0,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Warm-up steps; default: the recipe's.")] = None,
) -> None:
    """Make a small model from nothing and warm it up on demonstrations (about 25 minutes on 2 cores)."""
    from services.cli.model_command import init_model

    init_model(out, seed, steps)
