"""Runs the tools' Python: a pool of warm, walled-in interpreters, each serving one program at a time.

It refuses to let two programs meet: a zygote that can't prove that it wiped the last one is replaced.
"""

import asyncio
import contextlib
import json
import os
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.environments.interface import SandboxResult
from services.kernel.errors import Refused

CommandFactory = Callable[[], Sequence[str]]
GRACE_S = 5.0
"""What a zygote may take beyond a program's own time: a fork, the wiping, a busy machine."""
EXPLAIN_S = 10.0
"""How long one that doesn't come up may take to say why."""


@dataclass(slots=True)
class Zygote:
    """One warm interpreter."""

    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, command: Sequence[str]) -> "Zygote":
        """Start it; it serves as soon as it is up."""
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=nowhere))

    async def run(self, code: str, timeout_s: float) -> SandboxResult:
        """Run one program. Raises EOFError or TimeoutError when the zygote itself is lost."""
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise EOFError("no pipes")
        body = json.dumps({"code": code, "timeout_s": timeout_s}).encode()
        async with asyncio.timeout(timeout_s + GRACE_S):
            stdin.write(struct.pack(">I", len(body)) + body)
            await stdin.drain()
            (size,) = struct.unpack(">I", await stdout.readexactly(4))
            answer = json.loads(await stdout.readexactly(size))
        return SandboxResult(answer["stdout"], answer["stderr"], answer["exit_code"], answer["timed_out"])

    async def stop(self) -> None:
        """Kill it, and with it everything inside."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@dataclass(slots=True)
class PythonSandbox:
    """`services.environments.interface.Sandbox` on `size` zygotes; `command` makes the command line of a new one."""

    command: CommandFactory
    size: int
    idle: asyncio.Queue[Zygote | None] = field(default_factory=asyncio.Queue[Zygote | None])

    def __post_init__(self) -> None:
        for _ in range(self.size):
            self.idle.put_nowait(None)

    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        """Run `code` for at most `timeout_s`. A program that kills its sandbox is a failed program."""
        for _ in range(2):
            zygote = await self.idle.get()
            kept: Zygote | None = None
            try:
                zygote = zygote or await Zygote.start(self.command())
                result = await zygote.run(code, timeout_s)
                kept = zygote
            except (EOFError, TimeoutError, OSError, ValueError):
                continue
            else:
                return result
            finally:
                if kept is None and zygote is not None:
                    await zygote.stop()
                self.idle.put_nowait(kept)
        # Twice may be the program's doing (it can kill its zygote), so it is told rather than retried for ever.
        return SandboxResult("", "the program ended its sandbox", 137, False)

    async def probe(self) -> None:
        """Prove that a program runs behind the walls. Raises Refused with what went wrong."""
        zygote = await Zygote.start(self.command())
        try:
            result = await zygote.run("print(6 * 7)", 20.0)
        except (EOFError, TimeoutError, OSError) as error:
            said = await explain(self.command())
            line = f"the sandbox doesn't work here ({said or error!r}); FORGERL_ROLLOUT_SANDBOX=none runs without"
            raise Refused(line) from error
        finally:
            await zygote.stop()
        if result.stdout.strip() != "42":
            raise Refused(f"the sandbox runs programs wrongly: {result.stderr.strip() or result.stdout!r}")

    async def close(self) -> None:
        """Stop every idle zygote."""
        while not self.idle.empty():
            zygote = self.idle.get_nowait()
            if zygote is not None:
                await zygote.stop()


async def explain(command: Sequence[str], within_s: float = EXPLAIN_S) -> str:
    """What a zygote that doesn't come up says until it ends; one that doesn't end is killed."""
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=nowhere, stdout=nowhere, stderr=pipe)
    try:
        async with asyncio.timeout(within_s):
            _, stderr = await process.communicate()
    except TimeoutError:
        return f"it doesn't come up, and doesn't end within {within_s:g} s"
    finally:
        await Zygote(process).stop()
    return (stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
