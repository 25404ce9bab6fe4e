"""Starts the other ranks of one machine, and ends with them: a rank that is lost ends the group, to be started anew.

It refuses to go on with fewer ranks.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping

from services.kernel.errors import ForgeError
from services.kernel.logs import get_logger

PR_SET_PDEATHSIG = 1
STOP_GRACE_S = 5.0
LOOPBACK = "127.0.0.1"


def end_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, however that happens. Linux; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def meeting_place(size: int) -> dict[str, str]:
    """Rank 0's variables: an address of this machine, a port that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = int(probe.getsockname()[1])
    return {"RANK": "0", "WORLD_SIZE": str(size), "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}


class Followers:
    """A part: ranks 1 and up as child processes of this one."""

    def __init__(
        self, command: tuple[str, ...], environment: Mapping[str, str], connected: Callable[[], Awaitable[None]]
    ) -> None:
        self._command = command
        self._environment = environment
        self._connected = connected

    async def run(self) -> None:
        """Start them and wait; raises ForgeError as soon as one ends."""
        children: list[asyncio.subprocess.Process] = []
        try:
            for rank in range(1, int(self._environment["WORLD_SIZE"])):
                environment = {**os.environ, **self._environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
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
        await self._connected()
        get_logger().info("ranks.connected", size=int(self._environment["WORLD_SIZE"]))


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
