"""Starts the reward service. It refuses to wire: see bootstrap."""

from services.kernel.lifecycle import run
from services.reward.bootstrap import build
from services.reward.settings import Settings

if __name__ == "__main__":
    run(Settings, build)
