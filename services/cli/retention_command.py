"""`forgerl data prune`: frees old trajectories, once or after every step. Refuses to free what isn't recorded."""

import asyncio

from rich.console import Console

from services.cli.errors import UsageError
from services.cli.pool.places import PoolPlaces
from services.cli.pool.pruning import Plan, plan_pruning
from services.cli.pool.reading import Pool
from services.client import Client

_EPISODES_A_RECORD = 200


def prune_data(instance: str | None, run: str, keep_steps: int, *, dry_run: bool, follow: bool) -> None:
    """Frees what closed long ago, or says what would go; with `follow` again after every step, until the run ends."""
    if dry_run and follow:
        raise UsageError("--follow: given with --dry-run; allowed one of the two")
    places = PoolPlaces.of(instance)
    pool, console = Pool(places), Console(highlight=False)

    def planned() -> Plan:
        return asyncio.run(plan_pruning(pool, places.blob_url, run, keep_steps))

    if dry_run:
        _tell(console, run, planned(), "would be")
        return
    with Client(instance) as client:
        _free(client, pool, run, keep_steps, plan := planned())
        _tell(console, run, plan, "are")
        steps = plan.steps
        for view in client.watch_run(run) if follow else ():
            if view.steps > steps:
                _free(client, pool, run, keep_steps, plan := planned())
                _tell(console, run, plan, "are")
                steps = plan.steps


def _free(client: Client, pool: Pool, run: str, keep_steps: int, plan: Plan) -> None:
    """Every part is recorded before its first blob goes."""
    for part in plan.parts(_EPISODES_A_RECORD):
        if part.unrecorded:
            client.record_pruning(run, part.unrecorded, keep_steps, part.size_bytes)
        asyncio.run(pool.free(part.uris))


def _tell(console: Console, run: str, plan: Plan, how: str) -> None:
    if plan.kept_by_others:
        console.print(f"forgerl: {plan.kept_by_others} blobs stay, since episodes that are kept refer to them")
    console.print(
        f"forgerl: {plan.blobs} blobs, {plan.size_bytes / 1e6:.1f} MB {how} freed:"
        f" {len(plan.episodes)} episodes of {run} closed by step {max(0, plan.last_step)} of {plan.steps}",
        soft_wrap=True,
    )
