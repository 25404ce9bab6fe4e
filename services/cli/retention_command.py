"""`forgerl data prune`: asks for old episodes to be pruned, once or after every step, and shows what is freed of them.

It refuses to free anything itself: the scheduler records which episodes, and gateway and rollout free their blobs.
"""

import asyncio
from collections.abc import Sequence

import stamina
from rich.console import Console

from services.cli.errors import UsageError
from services.cli.pool.places import PoolPlaces
from services.cli.pool.pruning import Freed, freed_for, named_by
from services.cli.pool.reading import Pool
from services.cli.replay_command import ask
from services.client import Client

_PATIENCE_S = 60.0
_LOOK_S = 0.5


def prune_data(instance: str | None, run: str, keep_steps: int, *, dry_run: bool, follow: bool) -> None:
    """Prunes what closed long ago, or says what would go; with `follow` again after every step, until the run ends."""
    if dry_run and follow:
        raise UsageError("--follow: given with --dry-run; allowed one of the two")
    console = Console(highlight=False)
    if dry_run:
        _tell_what_would_go(instance, run, keep_steps, console)
        return
    pool = Pool(PoolPlaces.of(instance))
    with Client(instance) as client:
        steps = _prune(client, pool, (run, keep_steps), console)
        for view in client.watch_run(run) if follow else ():
            if view.steps > steps:
                steps = max(view.steps, _prune(client, pool, (run, keep_steps), console))


def _tell_what_would_go(instance: str | None, run: str, keep_steps: int, console: Console) -> None:
    """Asks the scheduler's own rules, for which nothing has to be up."""
    places = PoolPlaces.of(instance)
    found = ask(instance, run, "--prunable", str(keep_steps))
    episode_ids: list[str] = found["episode_ids"]
    named = asyncio.run(named_by(Pool(places), places.blob_url, episode_ids))
    if named.blobs:
        said = (
            "blobs that episodes which are kept name as well will stay; who names what is counted when they are freed"
        )
        console.print(f"forgerl: {said}", soft_wrap=True)
    console.print(
        f"forgerl: {'at most ' if named.blobs else ''}{_amount(named.blobs, named.size_bytes)} would be freed:"
        f" {_which(run, len(episode_ids), keep_steps, found['steps'])}",
        soft_wrap=True,
    )


def _prune(client: Client, pool: Pool, asked: tuple[str, int], console: Console) -> int:
    """Asks, and waits until both services have said what they freed; steps that were done."""
    run, keep_steps = asked
    told = client.prune_episodes(run, keep_steps)
    freed = asyncio.run(_wait(pool, run, list(told.event_ids), console))
    if freed.kept_blobs:
        said = f"{freed.kept_blobs} blobs stay, since episodes that are kept refer to them"
        console.print(f"forgerl: {said}", soft_wrap=True)
    if freed.pending:
        said = "it is recorded; gateway and rollout have not freed all of it yet, and will as soon as they come to it"
        console.print(f"forgerl: {said}", soft_wrap=True)
    console.print(
        f"forgerl: {_amount(freed.blobs, freed.size_bytes)} are freed:"
        f" {_which(run, told.episodes, keep_steps, told.steps)}",
        soft_wrap=True,
    )
    return told.steps


async def _wait(pool: Pool, run: str, event_ids: Sequence[str], console: Console) -> Freed:
    """What was freed: all, or what there is when nothing more was heard of for a minute."""
    freed = Freed(0, 0, 0, 2 * len(event_ids))
    with console.status("pruning") as status:
        while freed.pending:
            try:
                freed = await _more(pool, run, event_ids, freed.pending)
            except _NothingNew:
                return freed
            status.update(f"pruning: {_amount(freed.blobs, freed.size_bytes)}")
    return freed


class _NothingNew(Exception):
    """No service has said anything since."""


async def _more(pool: Pool, run: str, event_ids: Sequence[str], pending: int) -> Freed:
    async for attempt in stamina.retry_context(
        on=_NothingNew, attempts=None, timeout=_PATIENCE_S, wait_initial=0.1, wait_max=_LOOK_S
    ):
        with attempt:
            freed = await freed_for(pool, run, event_ids)
            if freed.pending < pending:
                return freed
            raise _NothingNew
    raise _NothingNew


def _amount(blobs: int, size_bytes: int) -> str:
    return f"{blobs} blobs, {size_bytes / 1e6:.1f} MB"


def _which(run: str, episodes: int, keep_steps: int, steps: int) -> str:
    return f"{episodes} episodes of {run} closed by step {max(0, steps - keep_steps)} of {steps}"
