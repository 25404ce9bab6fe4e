"""Finding and ending processes of an instance, also those whose parents are gone.

Every child carries two variables in its environment, which its own children inherit: the mark. Refuses to touch a
process without the mark.
"""

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

OWNER = "FORGERL_CHILD_OF"
NAME = "FORGERL_CHILD"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid that can't be confused with a later process of the same number. `started` is in clock ticks since boot."""

    pid: int
    started: int


def identify(pid: int) -> ProcessId | None:
    """None when no such process is there, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId) -> bool:
    """Whether it still runs: the same process, not a later one of its number, nor a zombie."""
    return identify(process.pid) == process


def marked(instance_dir: Path, child: str | None = None) -> list[ProcessId]:
    """Living processes of the instance, or of one child of it; never the caller."""
    wanted = [f"{OWNER}={instance_dir}".encode()] + ([f"{NAME}={child}".encode()] if child else [])
    found: list[ProcessId] = []
    for entry in (path.name for path in Path("/proc").iterdir()):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        process = identify(int(entry))
        if process and all(mark in variables for mark in wanted):
            found.append(process)
    return found


def send(process: ProcessId, number: signal.Signals) -> None:
    """Signals the process if it still is the one that was meant."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def wait_gone(processes: list[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Waits for processes that needn't be children; answers those that are still there. Blocks."""
    deadline = time.monotonic() + timeout_s
    for process in processes:
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_alive(process):
                select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(fd)
    return [process for process in processes if is_alive(process)]


def reap(instance_dir: Path, child: str | None = None, grace_s: float = 0.0) -> int:
    """Ends every marked process, gently first when `grace_s` is given; answers how many there were. Blocks."""
    first = marked(instance_dir, child)
    if first and grace_s:
        for process in first:
            send(process, signal.SIGTERM)
        wait_gone(first, grace_s)
    # A process that forks while it is looked for shows up in the next round.
    for _ in range(5):
        left = marked(instance_dir, child)
        if not left:
            break
        for process in left:
            send(process, signal.SIGKILL)
        wait_gone(left, 2.0)
    return len(first)
