"""Outlives the supervisor by a moment: when it is killed, ends whatever carries the instance's mark.

Usage: python -m services.cli.supervisor.guard FD INSTANCE_DIR. Reads FD: a byte means that all was stopped in good
order, the end of the stream means that the supervisor is dead.
"""

import os
import signal
import sys
from pathlib import Path

from services.cli.supervisor.processes import reap


def main() -> None:
    """Waits for the supervisor's end, deaf to signals; ends what is left of the instance unless all was in order."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not os.read(int(sys.argv[1]), 1):
        reap(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
