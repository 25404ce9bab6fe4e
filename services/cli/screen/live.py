"""Follows a run on the terminal until it is over, feeding it or only looking."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rich.console import Console
from rich.live import Live

from services.cli.screen.render import plain, screen
from services.cli.screen.snapshot import NOT_YET, Snapshot, take
from services.client import AsyncClient, Driver, Progress

_REDRAW_S = 1.0
_PLAIN_EVERY = 5


class _Follower:
    """Holds the newest progress for whoever draws."""

    def __init__(self, client: AsyncClient, run_id: str, console: Console) -> None:
        self._client, self._run_id, self._console = client, run_id, console
        self.progress: Progress | None = None
        self._last_line = ""

    def tell(self, progress: Progress) -> None:
        self.progress = progress

    async def until_done(self, work: "asyncio.Future[Any]") -> None:
        """Draws until `work` is done."""
        if self._console.is_terminal:
            snapshot = Snapshot(None, None, None, (), (), NOT_YET)
            with Live(screen(snapshot, self.progress), console=self._console, auto_refresh=False) as live:
                while not work.done():
                    live.update(screen(await take(self._client, self._run_id), self.progress), refresh=True)
                    await asyncio.wait([work], timeout=_REDRAW_S)
            return
        while not work.done():
            line = plain(await take(self._client, self._run_id), self.progress)
            if line != self._last_line:
                self._console.print(line, soft_wrap=True, markup=False)
            self._last_line = line
            await asyncio.wait([work], timeout=_REDRAW_S * _PLAIN_EVERY)


async def _only_look(client: AsyncClient, run_id: str) -> None:
    async for _ in client.watch_run(run_id):
        pass


async def follow_driver(
    client: AsyncClient, run_id: str, console: Console, also: Callable[[Progress], None] | None = None
) -> Progress:
    """Feeds and shows; raises what the driver raises. `also` hears every progress."""
    follower = _Follower(client, run_id, console)

    def tell(progress: Progress) -> None:
        follower.tell(progress)
        if also:
            also(progress)

    return await _draw_while(follower, Driver(client, run_id, tell).drive())


async def follow_run(client: AsyncClient, run_id: str, console: Console) -> None:
    """Shows only. Raises NotFound."""
    await client.run(run_id)
    await _draw_while(_Follower(client, run_id, console), _only_look(client, run_id))


async def _draw_while(follower: _Follower, working: Coroutine[Any, Any, Any]) -> Any:
    work = asyncio.ensure_future(working)
    try:
        await follower.until_done(work)
        return await work
    finally:
        work.cancel()
