"""What a tool's program can and can't do behind the walls."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.kernel.errors import Refused
from services.rollout.adapters.bubblewrap import Bubblewrap, find_bubblewrap, inside_command, source_root
from services.rollout.adapters.python_sandbox import PythonSandbox, explain

MEMORY_BYTES = 256 * 1024 * 1024


@pytest.fixture
async def sandbox() -> AsyncIterator[PythonSandbox]:
    walls = Bubblewrap(find_bubblewrap())

    def command() -> list[str]:
        program = inside_command("zygote", next(walls.uids), MEMORY_BYTES, 8, True)
        return walls.command(program, (), tmp_bytes=1024 * 1024)

    pool = PythonSandbox(command, 1)
    yield pool
    await pool.close()


async def test_it_answers_with_output_errors_and_exit_code(sandbox: PythonSandbox):
    result = await sandbox.run_python("import sys; print(6 * 7); print('e', file=sys.stderr); sys.exit(3)", 5.0)
    assert (result.stdout, result.stderr, result.exit_code, result.timed_out) == ("42\n", "e\n", 3, False)
    failed = await sandbox.run_python("1 / 0", 5.0)
    assert failed.exit_code == 1 and failed.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/shadow", str(Path.home() / ".profile"), __file__, "/proc/1/environ"]
)
async def test_it_reads_nothing_of_the_host(sandbox: PythonSandbox, path: str):
    result = await sandbox.run_python(f"print(open({path!r}).read())", 5.0)
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith(("FileNotFoundError", "PermissionError"))


async def test_home_shows_at_most_the_way_to_the_interpreter(sandbox: PythonSandbox):
    code = (
        f"import os; print([name for _, _, files in os.walk({str(Path.home())!r}) for name in files if 'rc' in name])"
    )
    assert ".bashrc" not in (await sandbox.run_python(code, 5.0)).stdout


async def test_it_inherits_no_environment(sandbox: PythonSandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORGERL_TOKEN", "not for programs")
    result = await sandbox.run_python("import os; print(sorted(os.environ))", 5.0)
    assert "FORGERL_TOKEN" not in result.stdout and "PATH" not in result.stdout


async def test_it_has_no_network(sandbox: PythonSandbox):
    listener = "import socket; print(socket.if_nameindex()); socket.create_connection(('1.1.1.1', 53), 2)"
    result = await sandbox.run_python(listener, 5.0)
    assert "'lo'" in result.stdout and "eth" not in result.stdout
    assert "Network is unreachable" in result.stderr


async def test_memory_is_bounded(sandbox: PythonSandbox):
    result = await sandbox.run_python(f"x = bytearray({2 * MEMORY_BYTES})", 5.0)
    assert result.stderr.splitlines()[-1] == "MemoryError"


async def test_time_is_bounded_and_the_next_program_is_served(sandbox: PythonSandbox):
    assert (await sandbox.run_python("while True: pass", 0.3)).timed_out
    assert (await sandbox.run_python("import time; time.sleep(60)", 0.3)).timed_out
    assert (await sandbox.run_python("print(1)", 5.0)).stdout == "1\n"


async def test_processes_are_bounded_and_none_is_left_over(sandbox: PythonSandbox):
    bomb = "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
    result = await sandbox.run_python(f"{bomb}except OSError as e: print(n, e.strerror)", 5.0)
    count, reason = result.stdout.split(" ", 1)
    assert 1 <= int(count) <= 8 and reason == "Resource temporarily unavailable\n"
    seen = "import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))"
    assert (await sandbox.run_python(seen, 5.0)).stdout == "3\n"


async def test_a_program_leaves_nothing_for_the_next(sandbox: PythonSandbox):
    await sandbox.run_python(
        "import os, builtins; os.makedirs('/tmp/a/b'); open('/tmp/a/b/c', 'w'); builtins.left = 1", 5.0
    )
    result = await sandbox.run_python("import os, builtins; print(os.listdir('/tmp'), hasattr(builtins, 'left'))", 5.0)
    assert result.stdout == "[] False\n"


async def test_it_writes_to_tmp_only_and_not_much(sandbox: PythonSandbox):
    for path in ("/x", "/forgerl/x", "/usr/x", "/dev/shm/x", "/dev/x"):
        assert (await sandbox.run_python(f"open({path!r}, 'w')", 5.0)).exit_code == 1
    full = await sandbox.run_python("open('/tmp/x', 'wb').write(bytes(2 * 1024 * 1024))", 5.0)
    assert "No space left on device" in full.stderr


async def test_output_is_bounded(sandbox: PythonSandbox):
    result = await sandbox.run_python("print('x' * 1_000_000)", 5.0)
    assert result.exit_code == 0 and len(result.stdout) == 16 * 1024


async def test_killing_its_sandbox_is_the_programs_own_failure(sandbox: PythonSandbox):
    result = await sandbox.run_python("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", 5.0)
    assert (result.exit_code, result.stderr) == (137, "the program ended its sandbox")
    assert (await sandbox.run_python("print(1)", 5.0)).stdout == "1\n"


async def test_the_zygotes_memory_is_out_of_reach(sandbox: PythonSandbox):
    result = await sandbox.run_python("import os; open(f'/proc/{os.getppid()}/mem', 'rb')", 5.0)
    assert result.stderr.splitlines()[-1].startswith("PermissionError")


async def test_without_walls_only_what_was_asked_for_by_name():
    pool = PythonSandbox(lambda: inside_command("zygote", 0, MEMORY_BYTES, 0x7FFF, False, code_root=source_root()), 1)
    await pool.probe()
    assert (await pool.run_python("while True: pass", 0.3)).timed_out
    await pool.close()


async def test_a_sandbox_that_does_not_start_says_why():
    walls = Bubblewrap(find_bubblewrap())
    pool = PythonSandbox(lambda: walls.command(["/no/such/program"], (), tmp_bytes=4096), 1)
    with pytest.raises(Refused, match=r"no/such/program.*FORGERL_ROLLOUT_SANDBOX=none"):
        await pool.probe()


async def test_a_sandbox_that_neither_comes_up_nor_ends_is_told_and_killed(tmp_path: Path):
    said = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {said}; exec sleep 60"]
    assert await explain(command, 0.5) == "it doesn't come up, and doesn't end within 0.5 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)
    assert await explain(["sh", "-c", "echo first >&2; echo no such user >&2; exit 1"]) == "no such user"
