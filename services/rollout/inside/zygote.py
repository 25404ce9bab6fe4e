"""A warm Python that forks once per program: a tool call costs milliseconds, not an interpreter's start.

Runs inside the sandbox, on the standard library alone; requests and answers are frames (4 bytes of length, JSON) on
stdin and stdout. It refuses to serve on when it can't wipe every trace of the last program: the host starts another.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import BinaryIO

from services.rollout.inside.confinement import Limits, become, owns_namespace, refuse_tracing

MAX_OUTPUT_BYTES = 16 * 1024
WIPE_ATTEMPTS = 200
FOLDER = Path("/tmp")
PRELOADED = ("math", "re", "random", "itertools", "functools", "collections", "statistics", "fractions", "datetime")


def main(uid: int, memory_bytes: int, processes: int, walled: bool) -> None:
    """Serve programs until stdin ends. `walled`: every other process and all of /tmp belong to the programs."""
    become(uid)
    refuse_tracing()
    if walled and not owns_namespace():
        raise SystemExit("not in a process namespace of its own")
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    devnull = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(devnull, standard)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while (frame := read_frame(requests)) is not None:
        request = json.loads(frame)
        timeout_s = float(request["timeout_s"])
        limits = Limits(memory_bytes, int(timeout_s) + 2, processes)
        answer = run(str(request["code"]), timeout_s, limits, walled)
        body = json.dumps(answer).encode()
        answers.write(struct.pack(">I", len(body)) + body)
        answers.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame's body; None at the end."""
    head = stream.read(4)
    return stream.read(struct.unpack(">I", head)[0]) if len(head) == 4 else None


def run(code: str, timeout_s: float, limits: Limits, walled: bool) -> dict[str, object]:
    """Fork, let the child run `code`, collect at most 16 KiB of each output, kill what is left, wipe /tmp."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_program(code, out_write, err_write, limits)
    os.close(out_write)
    os.close(err_write)
    outputs = {out_read: bytearray(), err_read: bytearray()}
    timed_out = not collect(pid, outputs, timeout_s)
    wipe(pid, walled)
    _, status = os.waitpid(pid, 0)
    drain(outputs)
    stdout, stderr = (bytes(outputs[pipe]).decode("utf-8", "replace") for pipe in (out_read, err_read))
    os.close(out_read)
    os.close(err_read)
    code_or_signal = os.waitstatus_to_exitcode(status)
    return {"stdout": stdout, "stderr": stderr, "exit_code": code_or_signal, "timed_out": timed_out}


def become_program(code: str, stdout: int, stderr: int, limits: Limits) -> None:
    """In the child: limits, outputs, then the code as __main__. Never returns."""
    exit_code = 1
    try:
        os.setsid()
        os.chdir(FOLDER)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 1024)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        limits.apply()
        exec(compile(code, "<program>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        exit_code = 0
    except SystemExit as asked:
        exit_code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc(limit=-4)
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code & 0xFF)


def collect(pid: int, outputs: dict[int, bytearray], timeout_s: float) -> bool:
    """Read the outputs until the child is gone; False when time ran out first."""
    poller = select.poll()
    gone = os.pidfd_open(pid)
    deadline = time.monotonic() + timeout_s
    for descriptor in (gone, *outputs):
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left_s * 1000):
                if descriptor == gone:
                    return True
                if not keep(descriptor, outputs[descriptor]):
                    poller.unregister(descriptor)
        return False
    finally:
        os.close(gone)


def keep(descriptor: int, kept: bytearray) -> bool:
    """Take what is there, keeping the first 16 KiB; False at the end of the output."""
    chunk = os.read(descriptor, 65536)
    kept.extend(chunk[: MAX_OUTPUT_BYTES - len(kept)])
    return bool(chunk)


def drain(outputs: dict[int, bytearray]) -> None:
    """What dead processes left in the pipes."""
    for descriptor, kept in outputs.items():
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while keep(descriptor, kept):
                pass


def wipe(pid: int, walled: bool) -> None:
    """Kill the program with all that it started, and empty /tmp. Exits when that can't be done."""
    if not walled:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return
    for _ in range(WIPE_ATTEMPTS):
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            break
        if only_zombies(pid):
            break
        time.sleep(0.001)
    else:
        raise SystemExit("processes survived")
    for left in FOLDER.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


def only_zombies(pid: int) -> bool:
    """Whether nothing but this process, the sandbox's first one and dead children are left."""
    mine = {"1", str(os.getpid())}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name in mine:
            continue
        with contextlib.suppress(OSError):
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                return False
    return True
