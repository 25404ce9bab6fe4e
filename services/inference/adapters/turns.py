"""One swap at a time among the engines of a machine, by a lock on a file; a process that dies lets go of it."""

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO


class FileTurns:
    """`path` is shared by the sidecars of an instance."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """See ports.Turns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("w") as file:
            waiting = asyncio.create_task(asyncio.to_thread(_lock, file))
            try:
                # A thread can't be cancelled: wait for it, so that the file is not closed under its hands.
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                await waiting
                raise
            yield


def _lock(file: IO[str]) -> None:
    fcntl.flock(file, fcntl.LOCK_EX)
