"""Keeps the children of a stack running: in dependency order, healthy, again after a death, and down in reverse order.

A child that never gets healthy, or spends its restarts, ends all: StackFailed carries its last lines.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from services.cli.errors import StackFailed
from services.cli.supervisor import processes
from services.cli.supervisor.child_log import ChildLog, Echo
from services.cli.supervisor.child_process import ChildProcess
from services.cli.supervisor.health import HealthProbe
from services.cli.supervisor.instance import CHECKOUT, Instance
from services.cli.supervisor.stack_file import Child, Stack

_LOOK_AGAIN_S = 0.25
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 15.0
# How services, engine and pool of KV end where trying again can't help.
_SETTINGS_REFUSED = 2


@dataclass(slots=True)
class _Watched:
    """What is known of a child; `gone` is set when it won't run again."""

    child: Child
    log: ChildLog
    state: str = "waiting"
    restarts: int = 0
    process: ChildProcess | None = None
    healthy: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    deaths: deque[float] = field(default_factory=deque)


class Supervisor:
    """`run` returns when `stop` was called and all is down, or raises StackFailed when all is down."""

    def __init__(self, instance: Instance, stack: Stack, probe: HealthProbe, echo: Echo | None = None) -> None:
        self._instance, self._stack, self._probe = instance, stack, probe
        self._watched = {c.name: _Watched(c, ChildLog(c.name, instance.log_of(c.name), echo)) for c in stack.children}
        self._stopping = asyncio.Event()
        self._failure: StackFailed | None = None
        self.all_healthy = asyncio.Event()

    def stop(self) -> None:
        """Begins the way down; may be called from a signal handler, and twice."""
        self._stopping.set()

    async def run(self) -> None:
        guard_pipe = self._start_guard()
        self._record("starting")
        try:
            await asyncio.gather(*(self._keep(watched) for watched in self._watched.values()))
        finally:
            # Reached with a child alive only when this task itself was cancelled.
            await asyncio.to_thread(processes.reap, self._instance.dir)
            self._record("failed" if self._failure else "stopped")
            os.write(guard_pipe, b".")
            os.close(guard_pipe)
            for watched in self._watched.values():
                watched.log.close()
        if self._failure:
            raise self._failure

    def _start_guard(self) -> int:
        reading, writing = os.pipe()
        clean = {k: v for k, v in os.environ.items() if k not in (processes.OWNER, processes.NAME)}
        subprocess.Popen(
            [sys.executable, "-m", "services.cli.supervisor.guard", str(reading), str(self._instance.dir)],
            pass_fds=[reading],
            start_new_session=True,
            cwd=CHECKOUT,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reading)
        return writing

    async def _keep(self, watched: _Watched) -> None:
        try:
            if await self._wait_for_dependencies(watched):
                while not self._stopping.is_set():
                    await self._live_once(watched)
        except StackFailed as failure:
            self._failure = self._failure or failure
            self._stopping.set()
        finally:
            self._set(watched, "stopped")
            watched.gone.set()

    async def _wait_for_dependencies(self, watched: _Watched) -> bool:
        for name in watched.child.depends_on:
            await self._either(self._watched[name].healthy.wait())
        return not self._stopping.is_set()

    async def _either(self, waiting: Any, timeout_s: float | None = None) -> None:
        """Until the coroutine is done, all is being stopped, or the time is over."""
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _live_once(self, watched: _Watched) -> None:
        """One start: to health, to the end, and the pause before the next; raises StackFailed when there's none."""
        child = watched.child
        started_s = time.monotonic()
        watched.process = process = await ChildProcess.start(child, self._instance.dir, watched.log)
        self._set(watched, "starting")
        if await self._until_healthy(watched, process):
            watched.log.note(f"healthy after {time.monotonic() - started_s:.1f} s")
            self._set(watched, "healthy")
            watched.healthy.set()
            if all(other.healthy.is_set() for other in self._watched.values()):
                self.all_healthy.set()
            await self._either(process.ended())
        if self._stopping.is_set():
            await self._stop_in_turn(watched)
            return
        code = await process.ended(0)
        if code is None:
            await process.stop()
            raise self._failed(watched, f"not healthy within {child.start_timeout_s:g} s")
        await self._pause_before_restart(watched, code)

    async def _until_healthy(self, watched: _Watched, process: ChildProcess) -> bool:
        health, deadline = watched.child.health, time.monotonic() + watched.child.start_timeout_s
        while not self._stopping.is_set() and time.monotonic() < deadline:
            if health is None or await self._probe.is_healthy(health):
                # Somebody else's answer on the same port isn't this child's.
                return await process.ended(0) is None
            if await process.ended(_LOOK_AGAIN_S) is not None:
                return False
        return False

    async def _stop_in_turn(self, watched: _Watched) -> None:
        """Stops the child once all that depend on it, or use it, are gone."""
        users = [other for other in self._watched.values() if watched.child.name in other.child.outlived_by]
        await asyncio.gather(*(user.gone.wait() for user in users))
        self._set(watched, "stopping")
        if watched.process:
            await watched.process.stop()

    async def _pause_before_restart(self, watched: _Watched, code: int) -> None:
        if code == _SETTINGS_REFUSED and not watched.healthy.is_set():
            raise self._failed(watched, "refuses its settings")
        now_s = time.monotonic()
        watched.deaths.append(now_s)
        while watched.deaths[0] < now_s - watched.child.restart_window_s:
            watched.deaths.popleft()
        if len(watched.deaths) > watched.child.restarts:
            raise self._failed(watched, f"{_ending(code)}; restart budget of {watched.child.restarts} spent")
        backoff_s = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (len(watched.deaths) - 1))
        watched.log.note(f"{_ending(code)}; again in {backoff_s:g} s")
        watched.restarts += 1
        self._set(watched, "restarting")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), backoff_s)

    def _failed(self, watched: _Watched, why: str) -> StackFailed:
        said = tuple(line for line in watched.log.last_lines() if not line.startswith("[up]"))
        return StackFailed(f"{watched.child.name}: {why}", said[-15:])

    def _set(self, watched: _Watched, state: str) -> None:
        watched.state = state
        self._record("stopping" if self._stopping.is_set() else "healthy" if self.all_healthy.is_set() else "starting")

    def children(self) -> list[dict[str, Any]]:
        """Name, state, pid, restarts of every child, for the screen and the record."""
        return [
            {
                "name": name,
                "state": watched.state,
                "pid": watched.process.identity.pid if watched.process else None,
                "started": watched.process.identity.started if watched.process else None,
                "restarts": watched.restarts,
                "health": watched.child.health.model_dump() if watched.child.health else None,
            }
            for name, watched in self._watched.items()
        ]

    def _record(self, state: str) -> None:
        own = processes.identify(os.getpid())
        shared = dict(self._stack.children[0].env) if self._stack.children else {}
        shared |= {name: value for name in _GIVEN if (value := os.environ.get(name))}
        self._instance.write_state(
            {
                "instance": self._instance.name,
                "state": state,
                "pid": os.getpid(),
                "started": own.started if own else 0,
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
                "ports": dict(self._stack.ports),
                "env": {k: v for k, v in shared.items() if k.startswith("FORGERL_") and k not in _SECRET},
                "children": self.children(),
            }
        )


_SECRET = ("FORGERL_TOKEN", "FORGERL_SECRET")
# From the environment of `up` alone, but a client in another terminal needs them as well.
_GIVEN = ("FORGERL_TLS_CERTIFICATE", "FORGERL_TLS_CA", "FORGERL_KAFKA_REPLICATION")


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with {code}"
