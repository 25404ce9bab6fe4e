"""What a process does to itself before untrusted code runs in it: another user, no way to be traced, hard limits.

Runs inside the sandbox, on the standard library alone. It refuses to loosen anything.
"""

import ctypes
import os
import resource
from dataclasses import dataclass
from pathlib import Path

PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one program: `memory_bytes` of address space a process, `cpu_s`, `processes` (threads too), largest file."""

    memory_bytes: int
    cpu_s: int
    processes: int
    file_bytes: int = 16 * 1024 * 1024

    def apply(self) -> None:
        """Bind this process and all that it starts; there is no way back."""
        for kind, value in (
            (resource.RLIMIT_AS, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_NPROC, self.processes),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_NOFILE, 256),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))


def become(uid: int) -> None:
    """Turn from root into user `uid`, which nobody else is: process limits count per user. No-op when not root."""
    if os.getuid() == 0 and uid > 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def owns_namespace() -> bool:
    """Whether every other process that can be seen here belongs to this sandbox."""
    return Path("/proc/1/comm").read_text().strip() == "bwrap"


def refuse_tracing() -> None:
    """Keep processes of the same user from reading or changing this one's memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
