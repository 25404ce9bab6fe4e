"""Fixtures that any test may use: real back ends, and waiting without sleeping."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from brokers import RealBroker, free_port, kinds

Check = Callable[[], object]
Eventually = Callable[..., Awaitable[None]]


@pytest.fixture
def eventually() -> Eventually:
    """`await eventually(check)`: returns as soon as check() is true, fails after `timeout_s`."""

    async def wait(check: Check, timeout_s: float = 20.0) -> None:
        until = monotonic() + timeout_s
        while True:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return
            assert monotonic() < until, f"not within {timeout_s} s"
            await asyncio.sleep(0.02)

    return wait


@pytest.fixture(scope="session", params=kinds())
def broker(request: pytest.FixtureRequest) -> Iterator[RealBroker]:
    """A broker of each kind that runs here, shared by the session: use keys and groups of your own."""
    folder = Path(tempfile.mkdtemp(prefix=f"forgerl-{request.param}-"))
    real = RealBroker(request.param, folder)
    real.start()
    yield real
    real.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=kinds())
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealBroker]:
    """A broker of each kind for one test alone, which may kill and empty it."""
    real = RealBroker(request.param, tmp_path / request.param)
    real.start()
    yield real
    real.kill()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL database: FORGERL_TEST_POSTGRES_URL, or a server started here; skipped without either."""
    if url := os.environ.get("FORGERL_TEST_POSTGRES_URL"):
        yield url
        return
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs or os.geteuid() != 0:
        pytest.skip("no PostgreSQL: set FORGERL_TEST_POSTGRES_URL, or install it and run as root")
    folder, port = Path(tempfile.mkdtemp(prefix="forgerl-postgres-")), free_port()
    shutil.chown(folder, "postgres")
    control, data = str(programs[-1].parent / "pg_ctl"), str(folder / "data")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    start = [control, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start"]
    utf8 = ("-E", "UTF8", "--locale=C")
    for command in ([str(programs[-1]), "-D", data, "-A", "trust", "-U", "forgerl", *utf8], start):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user="postgres", cwd="/")
    yield f"postgresql://forgerl@127.0.0.1:{port}/postgres"
    stop = [control, "-D", data, "-m", "immediate", "stop"]
    subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, user="postgres", cwd="/")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of an empty event store, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/events.db"
    server = request.getfixturevalue("postgres_server")
    return f"{server}?schema=t{os.urandom(6).hex()}"
