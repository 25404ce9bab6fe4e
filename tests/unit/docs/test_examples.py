"""The plug-ins in examples/ work: found by entry point, tasks apart, verdicts right, the black box over plain HTTP."""

import json
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from doc_pages import ROOT

from services.client import read_run_file
from services.contract.run_spec import check
from services.environments.registry import environments
from services.rollout.registry import agents


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages as an installer leaves them: modules on the path, entry points in a dist-info."""
    for folder in ("environments", "agents"):
        project = tomllib.loads((ROOT / "examples" / folder / "pyproject.toml").read_text())["project"]
        info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
        lines = [
            line
            for group, points in project["entry-points"].items()
            for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_parity_makes_tasks_and_judges(installed: None):
    parity = environments()["parity"]
    task = parity.task("train", 3)
    assert parity.messages(task) == [{"role": "user", "content": "Is 5 even or odd?"}]
    assert [parity.verify(task, said, []).score for said in ("odd", " Odd. ", "even", "")] == [1.0, 1.0, 0.0, 0.0]
    assert parity.verify(parity.task("heldout", 0), "even", []).score == 1.0
    with pytest.raises(ValueError, match="split"):
        parity.task("test", 0)


def test_parity_holds_out_what_it_does_not_train_on(installed: None):
    parity = environments()["parity"]
    train, heldout = ({parity.task(split, index).payload for index in range(200)} for split in ("train", "heldout"))
    assert len(train) == len(heldout) == 200
    assert not train & heldout


def test_its_run_file_is_one(installed: None):
    spec = read_run_file(ROOT / "examples" / "environments" / "parity.toml")
    assert check(spec, list(environments()), ["tool_loop"]) == []


class Gateway(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked = asked | {"path": self.path, "key": self.headers["authorization"]}  # type: ignore[attr-defined]
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "odd"}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_the_plain_black_box_needs_base_url_and_key_only(installed: None, tmp_path: Path):
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"messages": [{"role": "user", "content": "Is 5 even or odd?"}], "tools": []}))
    server = HTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
        "OPENAI_API_KEY": "key-1",
        "FORGERL_TASK_FILE": str(task),
    }
    command = agents()["plain_http"].command
    assert command[0] == sys.executable
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    server.shutdown()
    server.server_close()
    assert json.loads(done.stdout) == {"answer": "odd"}, done.stderr
    asked = server.asked  # type: ignore[attr-defined]
    assert (asked["path"], asked["key"]) == ("/v1/chat/completions", "Bearer key-1")
    assert asked["messages"][0]["content"] == "Is 5 even or odd?"
