"""Workflows of the shape of an episode's in a worker that does nothing else: what the server can bear by itself."""

import asyncio
import json
import sys

from loadtests.pipeline.stack import Stack


async def bare_per_s(stack: Stack, count: int) -> float:
    """Workflows a second, started and finished, in a process of their own."""
    command = [sys.executable, "-m", "loadtests.pipeline.bare", f"127.0.0.1:{stack.temporal_port}", str(count)]
    process = await asyncio.create_subprocess_exec(
        *command, env=stack.environment(), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"bare Temporal ended with {process.returncode}")
    return float(json.loads(out)["per_s"])
