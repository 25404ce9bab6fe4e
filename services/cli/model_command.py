"""`forgerl model init`: makes a small model from nothing, with a progress bar."""

import asyncio
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from services.cli.errors import UsageError
from services.cli.model.initialise import DEFAULT_STEPS, check_new
from services.cli.model.initialise import init_model as make


def init_model(out: Path, seed: int, steps: int | None) -> None:
    """Raises UsageError when `out` holds files already."""
    try:
        check_new(out)
    except FileExistsError as error:
        raise UsageError(str(error)) from error
    total = steps or DEFAULT_STEPS
    loss = TextColumn("{task.fields[loss]}")
    with Progress(TextColumn("warm-up"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), loss) as bar:
        task = bar.add_task("warm-up", total=total, loss="")
        report = asyncio.run(
            make(out, seed, steps, lambda at: bar.update(task, completed=at.step, loss=f"loss {at.loss:.3f}"))
        )
    success = ", ".join(f"{domain} {share:.2f}" for domain, share in report.heldout_success.items())
    Console(highlight=False).print(f"forgerl: {out}: {report.parameters:,} parameters, held-out success {success}")
