"""One start of one child: the process, its pump of lines, its end."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from services.cli.supervisor import processes
from services.cli.supervisor.child_log import ChildLog
from services.cli.supervisor.instance import CHECKOUT
from services.cli.supervisor.processes import ProcessId
from services.cli.supervisor.stack_file import Child

_SHIM = Path(__file__).with_name("shim.py")


class ChildProcess:
    """Built by `start`; ends by itself or by `stop`. Whatever it leaves behind is reaped by its mark."""

    def __init__(self, child: Child, instance_dir: Path, process: asyncio.subprocess.Process, log: ChildLog) -> None:
        self.child = child
        self._instance_dir = instance_dir
        self._process = process
        self._log = log
        self.identity = processes.identify(process.pid) or ProcessId(process.pid, 0)
        self._ended = asyncio.ensure_future(self._run_to_end())

    @classmethod
    async def start(cls, child: Child, instance_dir: Path, log: ChildLog) -> "ChildProcess":
        mark = {processes.OWNER: str(instance_dir), processes.NAME: child.name}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_SHIM),
            str(os.getpid()),
            *child.command,
            cwd=CHECKOUT,
            env={**os.environ, **child.env, **mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        return cls(child, instance_dir, process, log)

    async def _run_to_end(self) -> int:
        pump = asyncio.ensure_future(self._pump())
        await _exit_of(self._process.pid)
        # A grandchild may still hold the pipe, and asyncio waits for the pipe: it goes first.
        await asyncio.to_thread(processes.reap, self._instance_dir, self.child.name)
        await pump
        return await self._process.wait()

    async def _pump(self) -> None:
        stream = self._process.stdout
        assert stream
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line over the limit: dropped by the stream, and not worth the child
                self._log.note("a line over 1 MiB was left out")
                continue
            if not line:
                return
            self._log.write(line)

    async def ended(self, within_s: float | None = None) -> int | None:
        """The exit code, or None when it still runs after `within_s`."""
        done, _ = await asyncio.wait([self._ended], timeout=within_s)
        return self._ended.result() if done else None

    async def stop(self) -> None:
        """SIGTERM, the child's grace, SIGKILL; may be called twice."""
        processes.send(self.identity, signal.SIGTERM)
        if await self.ended(self.child.stop_grace_s) is None:
            self._log.note(f"still there after {self.child.stop_grace_s:g} s: killed")
            processes.send(self.identity, signal.SIGKILL)
            await self.ended()


async def _exit_of(pid: int) -> None:
    """Returns when the process itself has ended, whatever holds its pipes."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
