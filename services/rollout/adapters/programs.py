"""Runs black boxes: starts one behind walls or joins the one that outlived its worker, keeps its time, hears its end.

It refuses to count as the agent's what isn't: time that calls waited in our queues, or that the box was without worker.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from services.kernel.clock import Clock
from services.kernel.errors import Permanent, Transient
from services.kernel.logs import get_logger
from services.kernel.telemetry import current_traceparent
from services.rollout.adapters.boxes import BoxRecord, start_bare, start_ticks, start_walled
from services.rollout.adapters.bubblewrap import Bubblewrap, Mount, inside_command, source_root
from services.rollout.adapters.door import Account, Door
from services.rollout.adapters.model import ATTEMPT_HEADER
from services.rollout.ports import ProgramEnd, ProgramRun

INSIDE_FOLDER = "/forgerl/run"
LOST_BOXES = 8
CPU_SLACK_S = 60
LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """Of one black box."""

    memory_bytes: int
    processes: int
    tmp_bytes: int
    orphan_s: float
    patience_s: float


@dataclass(slots=True)
class SandboxedPrograms:
    """Implements `ports.Programs`. `walls` is None where no sandbox was asked for by name."""

    walls: Bubblewrap | None
    folder: Path
    client: aiohttp.ClientSession
    clock: Clock
    limits: BoxLimits
    at_once: int
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.at_once)

    async def run(self, run: ProgramRun) -> ProgramEnd:
        """Run or join; cancelling kills it. Raises Transient when it was lost, Permanent when that keeps happening."""
        async with self._slots:
            folder = self.folder / run.episode_id
            record = await asyncio.to_thread(BoxRecord.load, folder)
            if record is None:
                await asyncio.to_thread(make_anew, folder)
            joined = record is not None
            account = Account(queue_s=record.queue_s, calls=record.calls) if record else Account()
            changed = asyncio.Event()
            attempt = record.attempt if record else run.attempt
            headers = {ATTEMPT_HEADER: str(attempt), "traceparent": current_traceparent()}
            sent = {name: value for name, value in headers.items() if value}
            door = Door(
                self.client, self.clock, run.credential.base_url, sent, self.limits.patience_s, account, changed.set
            )
            async with door.at(folder):
                record = record or await self._start(run, folder)
                get_logger().info("program.joined" if joined else "program.started", attempt=attempt, pid=record.pid)
                try:
                    return await Watch(run, record, door, folder, changed, self.clock).until_end()
                finally:
                    record.kill()
                    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _start(self, run: ProgramRun, folder: Path) -> BoxRecord:
        write_private(folder / "box.json", {"api_key": run.credential.api_key, "command": list(run.command)})
        (folder / "task.json").write_text(run.task_json)
        cpu_s = int(min(run.budget_s, LONGEST_S)) + CPU_SLACK_S
        confined = (self.limits.orphan_s, (self.limits.memory_bytes, cpu_s, self.limits.processes))
        if self.walls is None:
            program = inside_command("agent_box", 0, str(folder), *confined, code_root=source_root())
            pid = await start_bare(program)
        else:
            program = inside_command("agent_box", next(self.walls.uids), INSIDE_FOLDER, *confined)
            mounts = (Mount(folder, INSIDE_FOLDER), *shown(run.command))
            command = self.walls.command(program, mounts, tmp_bytes=self.limits.tmp_bytes, outlives_parent=True)
            pid = await start_walled(command)
        now_s = self.clock.now().timestamp()
        record = BoxRecord(pid, start_ticks(pid), self.walls is None, run.attempt, now_s)
        # At once: nothing may come between a box's start and its record.
        record.save(folder)
        return record


@dataclass(slots=True)
class Watch:
    """Waits for one box's end, within the agent's budget."""

    run: ProgramRun
    record: BoxRecord
    door: Door
    folder: Path
    changed: asyncio.Event
    clock: Clock

    async def until_end(self) -> ProgramEnd:
        """The end: reported, timed out, or lost (raises Transient)."""
        async with self.record.death() as gone:
            while not self.door.ended.done():
                left_s = self.run.budget_s - self.agent_s()
                if left_s <= 0 and self.door.account.in_flight == 0:
                    return self._end({"stdout": "", "exit_code": -1}, timed_out=True)
                changed = asyncio.ensure_future(self.changed.wait())
                # With a call in flight nobody knows yet whose time it takes: its end tells.
                timeout_s = min(left_s, LONGEST_S) if left_s > 0 else None
                await asyncio.wait(
                    (changed, gone, self.door.ended), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
                if self.changed.is_set():
                    self.changed.clear()
                    await self._save()
                if gone.done() and not self.door.ended.done():
                    raise self._lost()
        report = self.door.ended.result()
        return self._end(report, timed_out=self.agent_s() > self.run.budget_s)

    def agent_s(self) -> float:
        """The agent's time until now, in seconds."""
        account = self.door.account
        wall_s = self.clock.now().timestamp() - self.record.began_at_s
        return max(0.0, wall_s - account.queue_s - account.lost_s)

    async def _save(self) -> None:
        account = self.door.account
        await asyncio.to_thread(replace(self.record, queue_s=account.queue_s, calls=account.calls).save, self.folder)

    def _lost(self) -> Exception:
        line = f"the box of attempt {self.record.attempt} ended without a report"
        return Permanent(f"{line}, as {LOST_BOXES} before it") if self.run.attempt > LOST_BOXES else Transient(line)

    def _end(self, report: dict[str, Any], *, timed_out: bool) -> ProgramEnd:
        account = self.door.account
        get_logger().debug("program.ended", exit_code=report["exit_code"], stderr=str(report.get("stderr", ""))[-2000:])
        return ProgramEnd(
            str(report["stdout"]),
            int(report["exit_code"]),
            timed_out,
            self.agent_s(),
            account.calls,
            account.last_status,
            account.last_error,
        )


def shown(command: Sequence[str]) -> tuple[Mount, ...]:
    """What a box must see to run a command: the files it names, and this virtual environment for Python programs."""
    files = [Path(word) for word in command if word.startswith("/") and Path(word).exists()]
    inside_environment = any(path.is_relative_to(sys.prefix) for path in files)
    own = [path for path in files if not path.is_relative_to(sys.prefix)]
    folders = [Path(sys.prefix)] if inside_environment and sys.prefix != sys.base_prefix else []
    return tuple(Mount(path) for path in (*folders, *own))


def make_anew(folder: Path) -> None:
    """An empty folder that is not the one before: a box without a record that still lives finds no door in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)


def write_private(path: Path, fields: dict[str, Any]) -> None:
    """A file that only its owner reads: it holds a key."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(fields))
