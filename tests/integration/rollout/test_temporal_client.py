"""The Temporal client against a dev server that is late, and one that never comes."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from brokers import free_port

from services.kernel.errors import Transient
from services.rollout.adapters.temporal import connect_temporal

TEMPORAL = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


async def test_a_server_that_never_comes_is_transient() -> None:
    with pytest.raises(Transient, match="temporal at 127"):
        await connect_temporal("127.0.0.1:1", "default", deadline_s=1.0)


@pytest.mark.skipif(TEMPORAL is None, reason="no temporal binary")
async def test_a_server_that_is_late_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    connecting = asyncio.create_task(connect_temporal(f"127.0.0.1:{port}", "default"))
    await asyncio.sleep(0.5)
    flags = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(tmp_path / "t.db")]
    command = [str(TEMPORAL), "server", "start-dev", *flags]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    server = await asyncio.to_thread(subprocess.Popen, command, **quiet)
    try:
        client = await asyncio.wait_for(connecting, 60)
        await client.start_workflow("nobody-runs-it", id="one", task_queue="none")
        assert (await client.get_workflow_handle("one").describe()).id == "one"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)
