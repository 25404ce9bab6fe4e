"""`forgerl up` with the real broker and the real Temporal, through the command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.cli.supervisor import processes
from services.cli.supervisor.instance import CHECKOUT, Instance

KAFKA = os.environ.get("KAFKA_HOME") or str(CHECKOUT.parent / "shared" / "kafka")
KINDS = ["tansu", *(["kafka"] if Path(KAFKA, "libs").is_dir() else [])]


@pytest.fixture(params=KINDS)
def forgerl(request, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("FORGERL_") or name == "KAFKA_HOME"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path))
    if request.param == "kafka":
        monkeypatch.setenv("KAFKA_HOME", KAFKA)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    yield run
    run("down")


@pytest.mark.broker
def test_up_detached_kill_and_down(forgerl):
    started = forgerl("up", "--only", "broker,temporal", "--detach")
    assert started.returncode == 0, started.stderr
    instance = Instance.named()
    first = {child["name"]: child for child in instance.read_state()["children"]}
    assert set(first) == {"broker", "temporal"}
    assert forgerl("status").returncode == 0
    assert "already up" in forgerl("up", "--only", "broker").stderr
    secrets = instance.dir / "secrets"
    assert oct(secrets.stat().st_mode & 0o777) == "0o600" and "FORGERL_TOKEN=" in secrets.read_text()

    os.kill(first["broker"]["pid"], signal.SIGKILL)
    again = _until(lambda: next(c for c in instance.read_state()["children"] if c["name"] == "broker"), restarts=1)
    assert again["pid"] != first["broker"]["pid"]
    assert forgerl("status").returncode == 0
    assert "killed by signal 9; again in 0.5 s" in forgerl("logs", "broker").stdout

    stopped = forgerl("down")
    assert stopped.returncode == 0 and "is down" in stopped.stdout
    assert processes.marked(instance.dir) == []
    assert forgerl("status").returncode == 3
    assert "was not up" in forgerl("down").stdout


def _until(read, restarts: int, timeout_s: float = 60.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        child = read()
        if child["restarts"] == restarts and child["state"] == "healthy":
            return child
        time.sleep(0.1)
    raise AssertionError(f"did not come back: {child}")
