"""Becomes the child's command, after asking the kernel to end it with its parent. A script, standard library only.

Usage: shim.py PARENT_PID COMMAND ARGUMENTS…
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns: ends as the command, or with 127 and one line when there is no such command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
