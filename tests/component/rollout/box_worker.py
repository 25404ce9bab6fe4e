"""A worker process of its own, for tests that kill it: runs one black box and writes its end to a file."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from services.kernel.clock import SystemClock
from services.rollout.adapters.bubblewrap import Bubblewrap, find_bubblewrap
from services.rollout.adapters.model import http_client
from services.rollout.adapters.programs import BoxLimits, SandboxedPrograms
from services.rollout.ports import Credential, ProgramRun


def programs(folder: Path, *, walled: bool = True, orphan_s: float = 20.0, processes: int = 128) -> SandboxedPrograms:
    """Black boxes under `folder`."""
    limits = BoxLimits(2 * 1024**3, processes, 16 * 1024**2, orphan_s, 20.0)
    walls = Bubblewrap(find_bubblewrap()) if walled else None
    return SandboxedPrograms(walls, folder, http_client(10), SystemClock(), limits, 4)


def program_run(script: Path, base_url: str, *, attempt: int = 1, budget_s: float = 30.0) -> ProgramRun:
    """A run of a Python script as an agent."""
    task = json.dumps({"messages": [{"role": "user", "content": "6*7?"}], "tools": []})
    credential = Credential(base_url, "key-1", "policy")
    return ProgramRun("ep-1", (sys.executable, str(script)), attempt, task, credential, budget_s)


async def main(folder: str, script: str, base_url: str, attempt: str, result: str) -> None:
    """Run or join, then write the end."""
    run = program_run(Path(script), base_url, attempt=int(attempt))
    end = await programs(Path(folder)).run(run)
    await asyncio.to_thread(Path(result).write_text, json.dumps(asdict(end)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
