"""A real process: it starts, says so, drains in reverse order, and ends when a part ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from brokers import free_port

PROGRAM = Path(__file__).with_name("small_service.py")


def start(folder: Path, mode: str, **environment: str) -> subprocess.Popen[str]:
    base = {"PATH": os.environ["PATH"], "FORGERL_TOKEN": "t", "FORGERL_SECRET": "hush", "FORGERL_LOG_JSON": "true"}
    base |= {"FORGERL_DATA_DIR": str(folder), **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(PROGRAM), mode], env=base, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_in_reverse_order_when_asked(tmp_path: Path, number: int) -> None:
    port = free_port()
    process = start(tmp_path, "run", FORGERL_SMALL_HEALTH_BIND=f"127.0.0.1:{port}")
    assert process.stderr is not None
    lines = []
    while not lines or lines[-1]["event"] != "service.ready":
        lines.append(json.loads(process.stderr.readline()))
    assert lines[0]["event"] == "service.starting"
    assert lines[0]["settings"]["secret"] == "**********"
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).status == 200
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out.split("\n")[:2]) == (0, ["second stopped", "first stopped"])
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize("mode", ["fail", "end"])
def test_a_part_that_ends_unasked_ends_the_process(tmp_path: Path, mode: str) -> None:
    process = start(tmp_path, mode)
    out, errors = process.communicate(timeout=30)
    failed = next(json.loads(line) for line in errors.splitlines() if "service.failed" in line)
    assert process.returncode == 1
    assert failed["error"] == "part Speaking ended unasked"
    assert ("lost its footing" in failed["cause"]) == (mode == "fail")
    assert out.splitlines() == ["second stopped", "first stopped"]
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FORGERL_SMALL_HEALTH": "x"}, "FORGERL_SMALL_HEALTH: given"),
        (
            {"FORGERL_DURABILITY": "maybe"},
            "FORGERL_DURABILITY: given 'maybe'; allowed Input should be 'process' or 'power'",
        ),
        ({"FORGERL_SMALL_HEALTH_BIND": "nowhere"}, "health_bind: given 'nowhere'"),
        ({"FORGERL_SMALL_HEALTH_BIND": "192.0.2.1:80"}, "health_bind: given '192.0.2.1:80'"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    process = start(tmp_path, "run", **environment)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said in errors
    assert "Traceback" not in errors
