"""A service of two parts for the lifecycle's tests: `python small_service.py run|fail|end`."""

import asyncio
import sys

from services.kernel.errors import Transient
from services.kernel.lifecycle import HealthPage, run
from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_SMALL_"):
    health_bind: str = "127.0.0.1:0"


class Speaking:
    def __init__(self, name: str, mode: str) -> None:
        self._name, self._mode = name, mode

    async def run(self) -> None:
        try:
            if self._mode == "fail":
                raise Transient("lost its footing")
            if self._mode == "run":
                await asyncio.Event().wait()
        finally:
            print(f"{self._name} stopped", flush=True)


def build(settings: Settings):
    page = HealthPage(settings.health_bind)
    return [page, Speaking("first", "run"), Speaking("second", sys.argv[1])]


run(Settings, build)
