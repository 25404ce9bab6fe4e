"""Every error of the command is one clear line on stderr, an exit code that isn't 0, and no traceback."""

import json
import os
import socket
import subprocess
import sys

import pytest

from services.kernel.blobs import Blobs
from services.kernel.errors import Transient


def forgerl(home, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
    environ = {**kept, "FORGERL_HOME": str(home / "home"), "COLUMNS": "200", **more}
    command = [sys.executable, "-m", "services.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.returncode != 0
    assert len(lines) == 1 and lines[0].startswith("forgerl: "), done.stderr
    for part in parts:
        assert part in lines[0], done.stderr


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    (folder / "model.safetensors").write_bytes(b"x")
    return folder


def run_file(folder, model, body: str = '[[domains]]\nname = "tool"\n') -> str:
    path = folder / "run.toml"
    path.write_text(f'{body}\n[model]\npath = "{model}"\n')
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nonsense"], ["No such command 'nonsense'"]),
        (["up", "--instance", "No Good"], ["instance: given 'No Good'; allowed 1 to 40 of a-z, 0-9 and -"]),
        (["up", "--engines", "0"], ["--engines: given 0; allowed 1 or more"]),
        (["up", "--engines", "two"], ["'--engines'", "a valid integer"]),
        (["up", "--only", ""], ["--only: given ''; allowed names"]),
        (["up", "--only", ","], ["--only: given ','; allowed names"]),
        (["up", "--model", "x" * 5000], ["model.path", "there's none of that name"]),
        (["logs", "nobody"], ["no log of 'nobody'; allowed none yet"]),
        (["runs"], ["instance default was never started here", "forgerl up"]),
        (["show", "ep-1"], ["instance default was never started here"]),
        (["episodes"], ["Missing argument 'RUN'"]),
        (["dlq", "list"], ["no broker known: forgerl up, or set FORGERL_KAFKA_URL"]),
        (["run", "gone.toml"], ["run file gone.toml: no such file"]),
        (["policy", "export", "r", "-1", "out"], ["-1"]),
    ],
)
def test_without_a_stack(tmp_path, model, arguments, parts):
    assert_one_line(forgerl(tmp_path, *arguments, FORGERL_ENGINE_MODEL=str(model)), *parts)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ('[scheduling]\nwindows = 3\n[[domains]]\nname = "tool"', ["scheduling.windows: given 'an unknown field'"]),
        ('[scheduling]\nwindow_items = -3\n[[domains]]\nname = "tool"', ["scheduling.window_items: given -3"]),
        ('[[domains]]\nname = "chess"', ["chess", "allowed", "tool"]),
        ('name = "x', ["run.toml"]),
        ('nonsense = 1\n[[domains]]\nname = "tool"', ["run.toml: nonsense: given 'an unknown field'"]),
        ('[[domains]]\nname = "tool"\n[sampling]\ntemperature = 0.0', ["sampling.temperature", "given 0"]),
    ],
)
def test_bad_run_files(tmp_path, model, body, parts):
    assert_one_line(forgerl(tmp_path, "run", run_file(tmp_path, model, body)), *parts)


def test_a_missing_model_and_one_without_a_template(tmp_path, model):
    assert_one_line(forgerl(tmp_path, "run", run_file(tmp_path, "nowhere")), "model.path: given 'nowhere'")
    (model / "tokenizer_config.json").write_text("{}")
    assert_one_line(forgerl(tmp_path, "run", run_file(tmp_path, model)), "model.path", "chat template")
    assert_one_line(forgerl(tmp_path, "up", "--model", str(model)), "model.path", "chat template")


def test_a_port_that_is_taken_starts_nothing(tmp_path, model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = forgerl(tmp_path, "up", FORGERL_PORT_GATEWAY=port, FORGERL_ENGINE_MODEL=str(model))
    assert_one_line(done, f"port in use: FORGERL_PORT_GATEWAY={port}")
    assert not (tmp_path / "home" / "default" / "stack.json").exists()


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"FORGERL_PORT_GATEWAY": "²"}, ["FORGERL_PORT_GATEWAY: given '²'; allowed 1 to 65535"]),
        ({"FORGERL_PORT_GATEWY": "PORT"}, ["FORGERL_PORT_GATEWY: fixes no port; allowed FORGERL_PORT_BROKER, "]),
        ({"FORGERL_PORT_ENGINE_N_EVENTS": "PORT"}, ["fixes no port", "FORGERL_PORT_ENGINE_N_EVENTS"]),
        # Of a second engine that isn't asked for: no mistake, and the next one is told.
        ({"FORGERL_PORT_ENGINE_2_EVENTS": "PORT", "FORGERL_PORT_GATEWAY": "0"}, ["FORGERL_PORT_GATEWAY: given '0'"]),
        ({"FORGERL_PORT_GATEWAY": "PORT", "FORGERL_PORT_GATEWAY_HTTP": "PORT"}, ["which is the port of gateway"]),
    ],
)
def test_ports_that_are_none_or_that_two_would_share(tmp_path, model, more, parts):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    more = {name: value.replace("PORT", port) for name, value in more.items()}
    assert_one_line(forgerl(tmp_path, "up", FORGERL_ENGINE_MODEL=str(model), **more), *parts)
    assert not (tmp_path / "home" / "default" / "stack.json").exists()


@pytest.mark.parametrize("command", [["runs"], ["watch", "r"], ["resume", "r"]])
def test_a_stack_that_was_stopped_is_said_at_once(tmp_path, command):
    folder = tmp_path / "home" / "default"
    folder.mkdir(parents=True)
    (folder / "secrets").write_text("FORGERL_TOKEN=t\n")
    env = {f"FORGERL_{part}_ADDRESS": "127.0.0.1:9" for part in ("GATEWAY", "SCHEDULER", "ROUTER", "TRAINER")}
    (folder / "stack.json").write_text(json.dumps({"state": "stopped", "pid": 1, "env": env}))
    # The patience of `watch` and `resume` is 300 s; the subprocess is given 60.
    assert_one_line(forgerl(tmp_path, *command), "instance default is not up: forgerl up starts it")


def test_an_address_that_is_none_is_said_at_once(tmp_path):
    done = forgerl(tmp_path, "runs", FORGERL_GATEWAY_ADDRESS="nonsense", FORGERL_TOKEN="t")
    assert_one_line(done, "FORGERL_GATEWAY_ADDRESS: given 'nonsense'; allowed host:port")


def test_a_run_file_is_read_in_utf8_whatever_the_terminal_speaks(tmp_path, model):
    file = tmp_path / "run.toml"
    file.write_bytes(f'\ufeff[model]\npath = "{model}"\n[[domains]]\nname = "tööl"\n'.encode())
    done = forgerl(tmp_path, "run", str(file), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert_one_line(done, "domains[0].name: given", "allowed")


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 8 MB; only root can make one."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=False)
    if mounting.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("what", ["instance", "blobs"])
def test_a_full_disk_starts_nothing(tmp_path, model, small_disk, what):
    more = {"FORGERL_HOME": str(small_disk)} if what == "instance" else {}
    more |= {"FORGERL_BLOB_URL": f"file://{small_disk}/blobs"} if what == "blobs" else {}
    done = forgerl(tmp_path, "up", FORGERL_ENGINE_MODEL=str(model), **more)
    assert_one_line(done, "disk full: ", f"MB free at {small_disk}", "at least 1024 MB allowed")
    assert not list(tmp_path.rglob("stack.json"))


async def test_a_blob_store_that_fills_up_says_so_and_goes_on_when_there_is_room(small_disk):
    blobs = Blobs.open(f"file://{small_disk}/blobs")
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 7 * 2**20)
    data = os.urandom(2 * 2**20)
    with pytest.raises(Transient, match=f"blob store file://{small_disk}/blobs: .*No space left"):
        await blobs.put(data, "application/octet-stream")
    filler.unlink()
    assert await blobs.get(await blobs.put(data, "application/octet-stream")) == data


def test_a_stack_that_is_gone_is_said_within_its_deadline(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    done = forgerl(tmp_path, "runs", FORGERL_GATEWAY_ADDRESS=address, FORGERL_TOKEN="t", FORGERL_PATIENCE_S="1")
    assert_one_line(done, f"nothing answers at {address}", "forgerl up")


def test_status_of_what_is_not_up_has_an_exit_code_of_its_own(tmp_path):
    done = forgerl(tmp_path, "status")
    assert done.returncode == 3 and done.stdout.strip() == "forgerl: instance default is not up"


def test_a_variable_that_a_service_does_not_know_ends_the_start_and_is_said_once(tmp_path, model):
    arguments = ("up", "--only", "gateway", "--detach")
    done = forgerl(tmp_path, *arguments, FORGERL_GATEWAY_NOPE="1", FORGERL_ENGINE_MODEL=str(model))
    first, *said = done.stderr.splitlines()
    assert done.returncode == 1 and first == "forgerl: gateway: refuses its settings; its last lines:"
    assert len(said) == 1 and said[0].startswith("  gateway: FORGERL_GATEWAY_NOPE: given 'a value'; allowed only ")


def test_a_pipe_has_no_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
    code = "from rich.console import Console; from services.cli import __main__ as m\n"
    code += "with m._no_width_without_a_terminal(): print(Console().width)\nprint(Console().width)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept)
    assert done.stdout.split() == ["1000", "80"]
    narrow = {**kept, "COLUMNS": "60"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=narrow)
    assert done.stdout.split() == ["60", "60"]


def test_ctrl_c_before_the_command_is_there_is_one_line():
    code = """
import sys
class Struck:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Struck())
from services.cli.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "forgerl: interrupted before it began\n")


def test_help_comes_at_once(tmp_path):
    import time

    started = time.monotonic()
    assert forgerl(tmp_path, "--help").returncode == 0
    # 0.4 s here alone; a busy machine is given room, an import of torch or grpc is not.
    assert time.monotonic() - started < 5
    imports = subprocess.run(
        [sys.executable, "-c", "import sys; from services.cli.app import build_app; build_app(); print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"torch", "grpc", "vllm", "transformers", "matplotlib", "numpy"} & set(imports)
