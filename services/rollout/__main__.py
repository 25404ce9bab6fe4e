"""Entry point: `python -m services.rollout`."""

import os
import sys

from services.kernel.lifecycle import run
from services.rollout.bootstrap import build
from services.rollout.settings import RolloutSettings


def main() -> None:
    """Run until told to stop."""
    try:
        run(RolloutSettings, build, workflows=True)
    except SystemExit as end:
        # All is written by now. Temporal's threads may still call back, and an interpreter that is being taken down
        # aborts the process for that.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
