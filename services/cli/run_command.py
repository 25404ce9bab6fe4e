"""`forgerl run, resume, stop, rm, runs, watch`: training runs through the client."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from forgerl.common.v1 import run_pb2
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from rich.console import Console
from rich.table import Table

from services.cli.engine_model import check_engine_model
from services.cli.errors import CommandError, UsageError
from services.cli.screen.live import follow_driver, follow_run
from services.cli.screen.render import closing_line
from services.client import AsyncClient, Client, Places, read_run_file
from services.contract.run_spec import RUN_ID, check, resolve
from services.environments.registry import environments
from services.kernel.errors import InvalidInput

STATES = {
    runs_pb.RUN_STATE_RUNNING: "running",
    runs_pb.RUN_STATE_ENDED: "ended",
    runs_pb.RUN_STATE_REMOVED: "removed",
}


def load_spec(file: Path) -> run_pb2.RunSpec:
    """A run file that was read and checked. Raises InvalidInput or UsageError with every problem."""
    try:
        spec = read_run_file(file)
    except InvalidInput as error:
        raise UsageError(error.message if error.field == str(file) else f"{file}: {error.message}") from error
    known = environments()
    # The agents' registry is rollout's; the gateway refuses an unknown one by the same words.
    problems = check(spec, list(known), [domain.agent for domain in resolve(spec).domains])
    if problems:
        raise UsageError(f"{file}: " + "; ".join(problems))
    return spec


def name_of(spec: run_pb2.RunSpec, file: Path, given: str | None) -> str:
    """The run's id: as given, else the file's `name`, else the file's own name."""
    name = given or spec.name or re.sub(r"[^a-z0-9-]+", "-", file.stem.lower())
    if not RUN_ID.fullmatch(name):
        raise UsageError(f"--name: given {name!r}; allowed {RUN_ID.pattern}")
    return name


def start_run(instance: str | None, file: Path, name: str | None, steps: int | None) -> None:
    """Creates the run and drives it to its end."""
    spec = load_spec(file)
    if steps:
        spec.end.Clear()
        spec.end.steps = steps
    run_id = name_of(spec, file, name)
    spec.name = spec.name or run_id
    places = Places.of(instance)
    check_engine_model(places, Path(spec.model.path))

    async def begin(client: AsyncClient) -> None:
        _not_removed(await client.create_run(run_id, spec))
        await drive(client, run_id)

    _with_client(places, begin)


def resume_run(instance: str | None, run_id: str, steps: int | None) -> None:
    """Feeds a running run, or gives an ended one a later end and feeds that."""

    async def again(client: AsyncClient) -> None:
        view = await client.run(run_id)
        _not_removed(view)
        if view.state == runs_pb.RUN_STATE_ENDED and steps is None:
            raise UsageError(f"run {run_id} has ended ({view.end_reason}): --steps names a later end")
        if steps is not None:
            await client.resume_run(run_id, run_pb2.EndSpec(steps=steps))
        await drive(client, run_id)

    _with_client(Places.of(instance), again)


def _not_removed(view: runs_pb.RunView) -> None:
    if view.state == runs_pb.RUN_STATE_REMOVED:
        raise UsageError(f"run {view.run_id} was removed: --name names a new one")


async def drive(client: AsyncClient, run_id: str) -> None:
    """Feeds a run and shows it; raises CommandError when training was refused."""
    console = Console(highlight=False)
    try:
        progress = await follow_driver(client, run_id, console)
    except asyncio.CancelledError:
        console.print(f"forgerl: run {run_id} goes on without new tasks; forgerl resume {run_id} feeds it again")
        raise
    if progress.run.failure:
        raise CommandError(f"run {run_id}: training was refused: {progress.run.failure}")
    console.print(closing_line(progress.run, (progress.before, progress.after)), soft_wrap=True)


def _with_client(places: Places, use: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with AsyncClient(places, patience_s=300.0) as client:
            await use(client)

    asyncio.run(main())


def stop_run(instance: str | None, run_id: str) -> None:
    """Ends the run now and prints how it ended."""
    with Client(instance) as client:
        view = client.stop_run(run_id)
    Console(highlight=False).print(f"forgerl: run {run_id} is {STATES.get(view.state, '?')} ({view.end_reason})")


def remove_run(instance: str | None, run_id: str) -> None:
    """Removes the run and prints what that freed, in blobs and MB."""
    with Client(instance) as client:
        freed = client.remove_run(run_id)
    megabytes = freed.freed_bytes / 1e6
    Console(highlight=False).print(f"forgerl: run {run_id} is removed: {freed.blobs} blobs, {megabytes:.1f} MB freed")


def list_runs(instance: str | None) -> None:
    """Prints one line a run."""
    with Client(instance) as client:
        found = client.runs()
    table = Table(box=None)
    for column in ("run", "state", "steps", "episodes", "evaluations", "reward", "created"):
        table.add_column(column, justify="left" if column in ("run", "state", "created") else "right")
    for view in found:
        reward = view.metrics.get("reward_mean")
        table.add_row(
            view.run_id,
            STATES.get(view.state, "?") + (f" ({view.end_reason})" if view.end_reason else ""),
            str(view.steps),
            f"{view.episodes_sealed}/{view.episodes_submitted}",
            f"{view.evaluations_sealed}/{view.evaluations_submitted}",
            "" if reward is None else f"{reward:.3f}",
            view.created_at.ToDatetime().isoformat(sep=" ", timespec="seconds"),
        )
    Console(highlight=False).print(table)


def watch_run(instance: str | None, run_id: str) -> None:
    """Shows a run without feeding it."""

    async def look(client: AsyncClient) -> None:
        console = Console(highlight=False)
        await follow_run(client, run_id, console)
        console.print(closing_line(await client.run(run_id)), soft_wrap=True)

    _with_client(Places.of(instance), look)
