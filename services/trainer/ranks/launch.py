"""Starts the other ranks of one machine, and ends with them: a rank that is lost ends the group, to be started anew.

It refuses to go on with fewer ranks.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable

from services.kernel.errors import ForgeError
from services.kernel.logs import get_logger
from services.trainer.ranks.place import Place

PR_SET_PDEATHSIG = 1
STOP_GRACE_S = 5.0


def end_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, however that happens. Linux; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Followers:
    """A part of rank 0: the other ranks, as child processes where nobody else has started them.

    `connected` is there once all ranks have met; `lost` fails when one no longer answers.
    """

    def __init__(
        self, place: Place, command: tuple[str, ...], connected: Awaitable[None], lost: Awaitable[None]
    ) -> None:
        self._place = place
        self._command = command
        self._connected = connected
        self._lost = lost

    async def run(self) -> None:
        """Start them and wait; raises ForgeError as soon as one ends or is lost."""
        children: list[asyncio.subprocess.Process] = []
        try:
            for rank in range(1, 1 if self._place.launched else self._place.size):
                environment = {**os.environ, **self._place.variables(rank)}
                children.append(await asyncio.create_subprocess_exec(*self._command, env=environment))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._meet())
                for rank, child in enumerate(children, start=1):
                    tasks.create_task(_watch(rank, child))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            await asyncio.gather(*(_stop(child) for child in children))

    async def _meet(self) -> None:
        await self._connected
        get_logger().info("ranks.connected", size=self._place.size)
        await self._lost


async def _watch(rank: int, child: asyncio.subprocess.Process) -> None:
    code = await child.wait()
    raise ForgeError(f"rank {rank} (process {child.pid}) ended with {code}; all ranks start again together")


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    child.terminate()
    try:
        async with asyncio.timeout(STOP_GRACE_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
