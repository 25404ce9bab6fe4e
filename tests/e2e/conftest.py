"""A stack of its own for a test: started by the command, ended whatever happens."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.cli.supervisor import processes
from services.cli.supervisor.instance import Instance

Forgerl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """An instance in the test's folder; nothing of it lives on."""
    for name in [name for name in os.environ if name.startswith("FORGERL_") and name != "FORGERL_ENGINE_MODEL"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path))
    monkeypatch.setenv("FORGERL_INSTANCE", "e2e")
    made = Instance.named()
    yield made
    command = [sys.executable, "-m", "services.cli", "down"]
    subprocess.run(command, capture_output=True, timeout=180, check=False)
    assert processes.marked(made.dir) == []


@pytest.fixture
def forgerl(instance: Instance) -> Forgerl:
    """Runs the command; fails with what it said when it fails."""

    def run(*arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    return run
