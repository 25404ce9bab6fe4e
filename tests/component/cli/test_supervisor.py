"""The supervisor with tiny real children: order, health, restarts, budget, drain, and no orphan however it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from services.cli.errors import StackFailed, UsageError
from services.cli.supervisor import processes
from services.cli.supervisor.instance import Instance
from services.cli.supervisor.opening import OpenInstance, UpOptions

LISTENER = """
import os, signal, socket, sys
port, note = int(sys.argv[1]), sys.argv[2]
def end(*_):
    open(note, "a").write(f"stop {sys.argv[3]}\\n"); os._exit(0)
signal.signal(signal.SIGTERM, end)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", port)); s.listen()
open(note, "a").write(f"start {sys.argv[3]}\\n")
print("serving", sys.argv[3], flush=True)
while True:
    s.accept()[0].close()
"""
NOBODY = {"kind": "tcp", "target": "127.0.0.1:${port:nobody}"}
FAILING = "import sys; print('no such luck'); sys.exit(3)"
NEVER_HEALTHY = "import signal; print('I only wait', flush=True); signal.pause()"
WITH_GRANDCHILD = """
import subprocess, sys, signal
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print("has a grandchild", flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("FORGERL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path / "home"))
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (model / name).write_text('{"chat_template": "x"}')
    (model / "model.safetensors").write_bytes(b"")
    monkeypatch.setenv("FORGERL_ENGINE_MODEL", str(model))
    return tmp_path


def write_stack(folder: Path, children: dict) -> Path:
    path = folder / "stack.yaml"
    path.write_text(json.dumps({"children": children}))
    return path


def listener(folder: Path, name: str, **more) -> dict:
    script = folder / "listener.py"
    script.write_text(LISTENER)
    return {
        "command": ["${python}", str(script), f"${{port:{name}}}", str(folder / "notes"), name],
        "health": {"kind": "tcp", "target": f"127.0.0.1:${{port:{name}}}"},
        "start_timeout_s": 20,
        **more,
    }


def python(code: str, **more) -> dict:
    return {"command": ["${python}", "-c", textwrap.dedent(code)], "start_timeout_s": 20, **more}


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().split("\n")[:-1]


async def run_until_healthy(opened: OpenInstance, file: Path, then=None) -> None:
    supervisor = opened.supervisor(UpOptions(file=file))
    running = asyncio.ensure_future(supervisor.run())
    healthy = asyncio.ensure_future(supervisor.all_healthy.wait())
    async with asyncio.timeout(30):
        await asyncio.wait([running, healthy], return_when=asyncio.FIRST_COMPLETED)
        if healthy.done() and then:
            await then(supervisor)
        supervisor.stop()
        healthy.cancel()
        await running


async def test_starts_in_order_and_stops_in_reverse(home):
    file = write_stack(
        home,
        {
            "front": listener(home, "front", depends_on=["middle"]),
            "middle": listener(home, "middle", depends_on=["back"]),
            "back": listener(home, "back"),
        },
    )
    opened = OpenInstance(Instance.named("t"))
    await run_until_healthy(opened, file)
    assert notes(home) == ["start back", "start middle", "start front", "stop front", "stop middle", "stop back"]
    assert processes.marked(opened.instance.dir) == []
    assert opened.instance.read_state()["state"] == "stopped"
    assert "serving middle" in opened.instance.log_of("middle").read_text()


async def test_a_used_child_is_stopped_later_though_it_was_not_waited_for(home):
    file = write_stack(home, {"user": listener(home, "user", uses=["used"]), "used": listener(home, "used")})
    await run_until_healthy(OpenInstance(Instance.named("t")), file)
    assert notes(home)[2:] == ["stop user", "stop used"]


async def test_a_killed_child_comes_back_on_its_port(home, eventually):
    file = write_stack(home, {"only": listener(home, "only")})
    opened = OpenInstance(Instance.named("t"))
    seen: list[int] = []

    async def kill(supervisor) -> None:
        [child] = supervisor.children()
        seen.append(child["pid"])
        os.kill(child["pid"], signal.SIGKILL)
        await eventually(lambda: [supervisor.children()[0][key] for key in ("restarts", "state")] == [1, "healthy"])
        seen.append(supervisor.children()[0]["pid"])

    await run_until_healthy(opened, file, kill)
    assert seen[0] != seen[1]
    assert notes(home) == ["start only", "start only", "stop only"]
    assert "killed by signal 9; again in 0.5 s" in opened.instance.log_of("only").read_text()


async def test_a_spent_budget_stops_all_and_shows_the_last_lines(home):
    file = write_stack(home, {"good": listener(home, "good"), "bad": python(FAILING, restarts=1, health=NOBODY)})
    opened = OpenInstance(Instance.named("t"))
    with pytest.raises(StackFailed, match="bad: ended with 3; restart budget of 1 spent") as raised:
        await run_until_healthy(opened, file)
    assert raised.value.last_lines == ("no such luck", "no such luck")
    assert processes.marked(opened.instance.dir) == []
    assert notes(home)[-1] == "stop good"


async def test_refused_settings_stop_all_without_another_try(home):
    refusing = "import sys; print('bad: FORGERL_X: given 1; allowed 2'); sys.exit(2)"
    file = write_stack(home, {"good": listener(home, "good"), "bad": python(refusing, restarts=5, health=NOBODY)})
    opened = OpenInstance(Instance.named("t"))
    with pytest.raises(StackFailed, match="bad: refuses its settings") as raised:
        await run_until_healthy(opened, file)
    assert raised.value.last_lines == ("bad: FORGERL_X: given 1; allowed 2",)
    assert processes.marked(opened.instance.dir) == []


async def test_a_child_that_never_gets_healthy_stops_all(home):
    slow = python(NEVER_HEALTHY, start_timeout_s=1, health=NOBODY)
    file = write_stack(home, {"slow": slow, "after": listener(home, "after", depends_on=["slow"])})
    opened = OpenInstance(Instance.named("t"))
    with pytest.raises(StackFailed, match="slow: not healthy within 1 s") as raised:
        await run_until_healthy(opened, file)
    assert raised.value.last_lines == ("I only wait",)
    assert not (home / "notes").exists()
    assert processes.marked(opened.instance.dir) == []


async def test_grandchildren_in_sessions_of_their_own_go_too(home, eventually):
    file = write_stack(home, {"parent": python(WITH_GRANDCHILD)})
    opened = OpenInstance(Instance.named("t"))

    async def two_are_there(supervisor) -> None:
        await eventually(lambda: len(processes.marked(opened.instance.dir)) == 2)

    await run_until_healthy(opened, file, two_are_there)
    assert processes.marked(opened.instance.dir) == []


def test_nothing_is_left_when_the_supervisor_itself_is_killed(home):
    file = write_stack(home, {"parent": python(WITH_GRANDCHILD), "other": listener(home, "other")})
    code = f"""
    import asyncio
    from pathlib import Path
    from services.cli.supervisor.instance import Instance
    from services.cli.supervisor.opening import OpenInstance, UpOptions
    asyncio.run(OpenInstance(Instance.named("t")).supervisor(UpOptions(file=Path({str(file)!r}))).run())
    """
    up = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    folder = Instance.named("t").dir
    try:
        children = wait_for(lambda: found if len(found := processes.marked(folder)) >= 3 else None)
    finally:
        up.kill()
        up.wait()
    assert processes.wait_gone(children, 10) == []
    assert wait_for(lambda: processes.marked(folder) == [])


def test_a_second_up_is_refused_and_left_overs_are_reaped(home):
    instance = Instance.named("t")
    instance.prepare()
    mark = {processes.OWNER: str(instance.dir), processes.NAME: "old"}
    left_over = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], env={**os.environ, **mark})
    wait_for(lambda: processes.marked(instance.dir))
    opened = OpenInstance(instance)
    assert left_over.wait(5) == -signal.SIGTERM
    with pytest.raises(UsageError, match="instance t is already up"):
        OpenInstance(Instance.named("t"))
    opened.close()
    OpenInstance(Instance.named("t")).close()


async def test_a_port_that_was_asked_for_and_is_taken_is_one_line(home, monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("FORGERL_PORT_ONLY", str(port))
        opened = OpenInstance(Instance.named("t"))
        with pytest.raises(UsageError, match=f"port in use: FORGERL_PORT_ONLY={port}"):
            opened.supervisor(UpOptions(file=write_stack(home, {"only": listener(home, "only")})))


def wait_for(found, timeout_s: float = 15.0):
    import time

    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("did not come true")
