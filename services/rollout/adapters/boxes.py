"""A black box as a process on this machine: started behind walls in a session of its own, found again by its record.

It refuses to mistake another process for a box: a pid counts only with the start time that was recorded with it.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from services.kernel.errors import Transient

START_TIMEOUT_S = 20.0
RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """A box that was started. `pid`: its first process; `whole_group`: killed as a process group, not by that process.

    `began_at_s` is wall clock (seconds since 1970), as it outlives the worker; `queue_s`, `calls`: up to the last call.
    """

    pid: int
    start_ticks: int
    whole_group: bool
    attempt: int
    began_at_s: float
    queue_s: float = 0.0
    calls: int = 0

    def save(self, folder: Path) -> None:
        """Write it down, at once or not at all."""
        fresh = folder / f"{RECORD}.new"
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(folder / RECORD)

    @classmethod
    def load(cls, folder: Path) -> "BoxRecord | None":
        """The record of a box that is still alive."""
        try:
            record = cls(**json.loads((folder / RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return record if start_ticks(record.pid) == record.start_ticks else None

    def kill(self) -> None:
        """End it with all that it started: the first process of a namespace takes everything with it."""
        if start_ticks(self.pid) != self.start_ticks:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.whole_group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    @asynccontextmanager
    async def death(self) -> AsyncIterator["asyncio.Future[None]"]:
        """A future that is done when the box is gone, whoever its parent is."""
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            gone.set_result(None)
            yield gone
            return
        loop.add_reader(descriptor, lambda: gone.done() or gone.set_result(None))
        try:
            yield gone
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def start_ticks(pid: int) -> int:
    """When a process was started, in clock ticks since boot; 0 when there's none, or only its corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


async def start_walled(command: Sequence[str]) -> int:
    """Start a bubblewrap command and answer the pid of its first inner process. Raises Transient; nothing then runs."""
    readable, writable = os.pipe()
    try:
        process = await spawn([command[0], "--info-fd", str(writable), *command[1:]], (writable,))
    finally:
        os.close(writable)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            said = await asyncio.to_thread(first_object, readable)
        return int(json.loads(said)["child-pid"])
    except BaseException as error:
        kill_family(process.pid)
        if isinstance(error, OSError | ValueError | KeyError | TimeoutError):
            raise Transient(f"a sandbox did not start: {error!r}") from error
        raise
    finally:
        os.close(readable)


def kill_family(pid: int) -> None:
    """End a process with all that descends from it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def first_object(descriptor: int) -> bytes:
    """Read up to the end of a flat JSON object, which comes in pieces; less where the other side is gone."""
    said = b""
    while b"}" not in said and (piece := os.read(descriptor, 4096)):
        said += piece
    return said


async def start_bare(command: Sequence[str]) -> int:
    """Start a command without walls, leading a process group of its own."""
    return (await spawn(command, ())).pid


async def spawn(command: Sequence[str], descriptors: Sequence[int]) -> asyncio.subprocess.Process:
    """In a session of its own: a signal for this service's group doesn't reach it."""
    nowhere = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, pass_fds=descriptors
    )
