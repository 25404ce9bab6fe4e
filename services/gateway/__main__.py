"""Starts the gateway."""

from services.gateway.bootstrap import build
from services.gateway.settings import Settings
from services.kernel.lifecycle import run

if __name__ == "__main__":
    run(Settings, build)
