"""Starts the scheduler. It refuses to wire: see bootstrap."""

from services.kernel.lifecycle import run
from services.scheduler.bootstrap import build
from services.scheduler.settings import Settings

if __name__ == "__main__":
    run(Settings, build)
