"""Black boxes: a program in a sandbox whose only way out is the gateway."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from box_worker import program_run, programs

from services.kernel.errors import Transient
from services.rollout.adapters.boxes import BoxRecord, start_ticks, start_walled
from services.rollout.adapters.bubblewrap import Bubblewrap, Mount, find_bubblewrap
from services.rollout.inside.wire import Request, read_request, response

EXAMPLE = Path(__file__).parents[3] / "examples" / "agents" / "openai_script.py"
JSON = [("content-type", "application/json")]
BOMB = """
import time
n = 0
try:
    while n < 200:
        n += 1
        if os.fork() == 0: time.sleep(60)
except OSError:
    print(n)
"""
ASK = """
import json, os, sys, urllib.request
def ask(**fields):
    body = json.dumps({"messages": [], **fields}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))
"""


def completion(content: str | None, **message: object) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ).encode()


@dataclass
class FakeGateway:
    """Answers calls by a function; remembers them."""

    answer: Callable[[Request], Awaitable[bytes]]
    calls: list[Request] = field(default_factory=list)
    base_url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        self.calls.append(asked)
        writer.write(await self.answer(asked))
        await writer.drain()
        writer.close()


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    async def answer(_: Request) -> bytes:
        return response(200, completion("42"), JSON)

    fake = FakeGateway(answer)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield fake
    server.close()


def script(folder: Path, code: str) -> Path:
    path = folder / "agent.py"
    path.write_text(ASK + code)
    return path


async def test_the_openai_script_runs_with_base_url_and_key_only(gateway: FakeGateway, tmp_path: Path):
    function = {"name": "python", "arguments": '{"code": "print(6*7)"}'}
    tool_call = {"id": "c1", "type": "function", "function": function}

    async def answer(asked: Request) -> bytes:
        messages = json.loads(asked.body)["messages"]
        if len(messages) == 1:
            return response(200, completion(None, tool_calls=[tool_call]), JSON)
        return response(200, completion(messages[-1]["content"]), [*JSON, ("x-forgerl-queue-s", "0.5")])

    gateway.answer = answer
    end = await programs(tmp_path).run(program_run(EXAMPLE, gateway.base_url, attempt=3))
    assert (json.loads(end.stdout), end.exit_code, end.timed_out, end.calls) == ({"answer": "42"}, 0, False, 2)
    assert {(c.header("authorization"), c.header("x-forgerl-attempt")) for c in gateway.calls} == {
        ("Bearer key-1", "3")
    }
    assert len({c.header("idempotency-key") for c in gateway.calls}) == 2
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_it_gets_no_environment_no_network_and_no_host(gateway: FakeGateway, tmp_path: Path):
    code = """
import socket
def refused(step):
    try: step()
    except OSError as error: return type(error).__name__
ask()
print(json.dumps({"env": sorted(os.environ), "net": refused(lambda: socket.create_connection(("1.1.1.1", 53), 2)),
  "passwd": refused(lambda: open("/etc/passwd")), "key": refused(lambda: open("/forgerl/run/box.json")),
  "write": refused(lambda: open("/forgerl/run/x", "w")),
  "task": json.load(open(os.environ["FORGERL_TASK_FILE"]))["tools"]}))
"""
    end = await programs(tmp_path).run(program_run(script(tmp_path, code), gateway.base_url))
    found = json.loads(end.stdout)
    wanted = ["FORGERL_TASK_FILE", "HOME", "LANG", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "PATH"]
    assert [name for name in found["env"] if name not in ("LC_CTYPE", "PWD")] == wanted
    assert (found["net"], found["passwd"], found["task"]) == ("OSError", "FileNotFoundError", [])
    assert found["write"] in ("PermissionError", "OSError")
    if os.getuid() == 0:
        assert found["key"] == "PermissionError"


async def test_its_own_time_is_bounded(gateway: FakeGateway, tmp_path: Path):
    path = script(tmp_path, "ask()\nimport time; time.sleep(60)")
    end = await programs(tmp_path).run(program_run(path, gateway.base_url, budget_s=5.0))
    assert end.timed_out and end.calls == 1 and 5.0 <= end.agent_s < 9.0


async def test_queueing_is_not_its_time(gateway: FakeGateway, tmp_path: Path):
    async def slow(_: Request) -> bytes:
        await asyncio.sleep(5.2)
        return response(200, completion("42"), [*JSON, ("x-forgerl-queue-s", "5.2")])

    gateway.answer = slow
    path = script(tmp_path, "print(ask()['choices'][0]['message']['content'])")
    end = await programs(tmp_path).run(program_run(path, gateway.base_url, budget_s=5.0))
    assert (end.stdout, end.timed_out) == ("42\n", False) and end.agent_s < 5.0


async def test_processes_are_bounded(gateway: FakeGateway, tmp_path: Path):
    path = script(
        tmp_path,
        BOMB,
    )
    end = await programs(tmp_path, processes=16).run(program_run(path, gateway.base_url))
    assert end.exit_code == 0 and int(end.stdout) < 16


async def test_a_gateway_that_is_restarted_is_waited_for(gateway: FakeGateway, tmp_path: Path):
    async def twice(_: Request) -> bytes:
        if len(gateway.calls) < 3:
            return response(503, b"{}", JSON)
        return response(200, completion("42"), JSON)

    gateway.answer = twice
    path = script(tmp_path, "print(ask()['choices'][0]['message']['content'])")
    end = await programs(tmp_path).run(program_run(path, gateway.base_url))
    assert (end.stdout, end.calls, end.last_status) == ("42\n", 1, 200)
    assert len({call.header("idempotency-key") for call in gateway.calls}) == 1


async def test_a_refusal_reaches_the_agent_and_the_account(gateway: FakeGateway, tmp_path: Path):
    async def refuse(_: Request) -> bytes:
        return response(400, b'{"error": {"message": "m", "code": "context_length_exceeded"}}', JSON)

    gateway.answer = refuse
    end = await programs(tmp_path).run(program_run(script(tmp_path, "ask()"), gateway.base_url))
    assert (end.exit_code, end.last_status, end.last_error) == (1, 400, "context_length_exceeded")


async def test_a_stream_passes_as_it_comes(gateway: FakeGateway, tmp_path: Path):
    async def stream(_: Request) -> bytes:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        return head + b"data: a\n\ndata: [DONE]\n\n"

    gateway.answer = stream
    code = "request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/x', b'{}')\n"
    code += "print(repr(urllib.request.urlopen(request).read()))"
    end = await programs(tmp_path).run(program_run(script(tmp_path, code), gateway.base_url))
    assert end.stdout == repr(b"data: a\n\ndata: [DONE]\n\n") + "\n"


async def test_cancelling_kills_the_box(gateway: FakeGateway, tmp_path: Path):
    called = asyncio.Event()

    async def answer(_: Request) -> bytes:
        called.set()
        return response(200, completion("42"), JSON)

    gateway.answer = answer
    path = script(tmp_path, "ask()\nimport time; time.sleep(60)")
    running = asyncio.ensure_future(programs(tmp_path).run(program_run(path, gateway.base_url)))
    await asyncio.wait_for(called.wait(), 20)
    record = BoxRecord.load(tmp_path / "ep-1")
    assert record is not None
    async with record.death() as gone:
        running.cancel()
        await asyncio.wait_for(gone, 10)
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_box_that_dies_is_lost_not_wrong(gateway: FakeGateway, tmp_path: Path):
    async def kill(_: Request) -> bytes:
        record = BoxRecord.load(tmp_path / "ep-1")
        assert record is not None
        record.kill()
        return response(200, completion("42"), JSON)

    gateway.answer = kill
    path = script(tmp_path, "ask()\nimport time; time.sleep(60)")
    with pytest.raises(Transient, match="attempt 1 ended without a report"):
        await programs(tmp_path).run(program_run(path, gateway.base_url))


async def worker(folder: Path, path: Path, base_url: str, attempt: int) -> asyncio.subprocess.Process:
    arguments = [str(folder), str(path), base_url, str(attempt), str(folder / "end.json")]
    return await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("box_worker.py")), *arguments
    )


async def test_a_box_that_outlived_its_worker_is_joined_and_its_call_is_one(gateway: FakeGateway, tmp_path: Path):
    called, released = asyncio.Event(), asyncio.Event()

    async def hold_first(_: Request) -> bytes:
        called.set()
        if len(gateway.calls) == 1:
            await released.wait()
        return response(200, completion(f"answer {len(gateway.calls)}"), JSON)

    gateway.answer = hold_first
    path = script(tmp_path, "print(ask()['choices'][0]['message']['content'])")
    first = await worker(tmp_path, path, gateway.base_url, 1)
    await asyncio.wait_for(called.wait(), 30)
    record = BoxRecord.load(tmp_path / "ep-1")
    assert record is not None
    os.kill(first.pid, signal.SIGKILL)
    await first.wait()
    assert start_ticks(record.pid) == record.start_ticks
    second = await worker(tmp_path, path, gateway.base_url, 2)
    assert await asyncio.wait_for(second.wait(), 30) == 0
    released.set()
    end = json.loads((tmp_path / "end.json").read_text())
    assert (end["stdout"], end["exit_code"]) == ("answer 2\n", 0)
    # One box, one attempt, one call by its key, sent twice.
    assert [call.header("x-forgerl-attempt") for call in gateway.calls] == ["1", "1"]
    assert len({call.header("idempotency-key") for call in gateway.calls}) == 1


async def test_a_box_without_a_worker_ends_itself(gateway: FakeGateway, tmp_path: Path):
    called = asyncio.Event()

    async def answer(_: Request) -> bytes:
        called.set()
        return response(200, completion("42"), JSON)

    gateway.answer = answer
    path = script(tmp_path, "ask()\nimport time; time.sleep(600)")
    boxes = programs(tmp_path, orphan_s=0.5)
    running = asyncio.ensure_future(boxes.run(program_run(path, gateway.base_url)))
    await asyncio.wait_for(called.wait(), 20)
    record = BoxRecord.load(tmp_path / "ep-1")
    assert record is not None
    async with record.death() as gone:
        # What a kill -9 of the worker leaves behind: a door that is shut, and nobody who kills the box.
        record_kill = BoxRecord.kill
        BoxRecord.kill = lambda self: None  # type: ignore[method-assign]
        try:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.wait_for(gone, 10)
        finally:
            BoxRecord.kill = record_kill  # type: ignore[method-assign]


async def test_without_walls_it_runs_too(gateway: FakeGateway, tmp_path: Path):
    path = script(tmp_path, "print(ask()['choices'][0]['message']['content'])")
    end = await programs(tmp_path, walled=False).run(program_run(path, gateway.base_url))
    assert (end.stdout, end.exit_code) == ("42\n", 0)


async def test_a_box_that_cannot_start_leaves_nothing_running(tmp_path: Path, eventually):
    with pytest.raises(Transient, match="a sandbox did not start"):
        await start_walled([str(find_bubblewrap()), "--no-such-option"])
    missing = Bubblewrap(find_bubblewrap()).command(
        ["/usr/bin/sleep", "60"], (Mount(tmp_path / "missing"),), tmp_bytes=4096, outlives_parent=True
    )
    record = BoxRecord(await start_walled(missing), 1, False, 1, 0.0)
    async with record.death() as gone:
        await asyncio.wait_for(gone, 10)
    await eventually(lambda: "bwrap" not in {child.name() for child in psutil.Process().children(recursive=True)})
