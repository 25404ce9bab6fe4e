"""demo: everything at once."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(demo)


def demo(
    file: Annotated[Path | None, typer.Option("--file", help="A run file; default examples/mixed.toml.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Another seed than the file's.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Another end than the file's.")] = None,
    engines: Annotated[int, typer.Option(help="vLLM engines.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder of the plot and the numbers.")] = Path("demo-out"),
) -> None:
    """Start the stack, train, evaluate before and after, and stop the stack again."""
    from services.cli.demo.command import DemoOptions, run_demo

    run_demo(DemoOptions(file=file, seed=seed, steps=steps, engines=engines, out=out))
