"""Starts the trainer. It refuses to wire: see bootstrap."""

from services.kernel.lifecycle import run
from services.trainer.bootstrap import build
from services.trainer.settings import Settings

if __name__ == "__main__":
    run(Settings, build)
