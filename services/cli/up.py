"""`forgerl up`: the supervisor in the foreground, or detached with its lines in a file."""

import asyncio
import os
import select
import signal
import subprocess
import sys

from rich.console import Console

from services.cli.errors import StackFailed, UsageError
from services.cli.supervisor.instance import Instance
from services.cli.supervisor.opening import OpenInstance, UpOptions

READY_FD = "FORGERL_READY_FD"
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")


class PrefixedLines:
    """Lines of all children on one terminal, each with its child's name."""

    def __init__(self) -> None:
        self._console = Console(soft_wrap=True, highlight=False, markup=False)
        self._colours: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._console.print(f"{name:<11} │", style=colour, end=" ")
        self._console.print(line)


async def supervise(opened: OpenInstance, options: UpOptions) -> None:
    """Runs until a signal or a failure."""
    # Detached, nobody reads the terminal: the lines are in the children's files.
    supervisor = opened.supervisor(options, None if os.environ.get(READY_FD) else PrefixedLines())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop)
    announcing = asyncio.ensure_future(_announce(supervisor.all_healthy, opened.instance))
    try:
        await supervisor.run()
    finally:
        announcing.cancel()


async def _announce(all_healthy: asyncio.Event, instance: Instance) -> None:
    await all_healthy.wait()
    Console(highlight=False).print(f"forgerl: all up (instance {instance.name}, {instance.dir}); Ctrl-C stops")
    fd = os.environ.get(READY_FD)
    if fd:
        os.write(int(fd), b"ready")
        os.close(int(fd))


def up_attached(instance_name: str | None, options: UpOptions) -> None:
    """Returns when all was stopped by a signal."""
    opened = OpenInstance(Instance.named(instance_name))
    try:
        asyncio.run(supervise(opened, options))
    finally:
        opened.close()


def up_detached(instance_name: str | None, options: UpOptions) -> None:
    """Returns when all are healthy. Raises StackFailed with the last lines when they don't get there."""
    instance = Instance.named(instance_name)
    instance.prepare()
    log = instance.log_of("up")
    reading, writing = os.pipe()
    command = (sys.executable, "-m", "services.cli", "up")
    with log.open("wb") as out:
        only = ["--only", ",".join(options.only)] if options.only else []
        only += ["--model", str(options.model.absolute())] if options.model else []
        process = subprocess.Popen(
            [*command, "--instance", instance.name, "--engines", str(options.engines), *only],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=[writing],
            env={**os.environ, READY_FD: str(writing)},
        )
    os.close(writing)
    select.select([reading], [], [])
    if os.read(reading, 8):
        Console(highlight=False).print(f"forgerl: all up (instance {instance.name}, pid {process.pid}, {instance.dir})")
        return
    process.wait()
    said = log.read_text(errors="replace").strip().splitlines()
    line = next((line.removeprefix("forgerl: ") for line in said if line.startswith("forgerl: ")), "")
    if process.returncode == UsageError.exit_code:
        raise UsageError(line)
    what = line.removesuffix("; its last lines:") or f"up ended with {process.returncode}"
    raise StackFailed(what, tuple(line.removeprefix("  ") for line in said if not line.startswith("forgerl: "))[-15:])
