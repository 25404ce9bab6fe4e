"""`forgerl status` and `forgerl logs`: what the record and the log files say."""

import asyncio
import collections
import os
import select
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.cli.errors import UsageError
from services.cli.supervisor import processes
from services.cli.supervisor.health import HealthProbe, Tls
from services.cli.supervisor.instance import Instance
from services.cli.supervisor.opening import running_supervisor
from services.cli.supervisor.processes import ProcessId
from services.cli.supervisor.stack_file import Health


async def _probe_all(instance: Instance, children: list[dict]) -> list[str]:
    tls = Tls.of({**instance.read_state().get("env", {}), **os.environ})
    probe = HealthProbe(instance.read_secrets().get("FORGERL_TOKEN", ""), tls)

    async def one(child: dict) -> str:
        if not child["pid"] or not processes.is_alive(ProcessId(child["pid"], child["started"])):
            return "gone"
        if not child["health"]:
            return "running"
        return "healthy" if await probe.is_healthy(Health.model_validate(child["health"])) else "not healthy"

    return list(await asyncio.gather(*(one(child) for child in children)))


def show_status(instance_name: str | None) -> None:
    """Exit code 3 when the instance isn't up, 1 when a child isn't healthy."""
    instance = Instance.named(instance_name)
    console = Console(highlight=False)
    state = instance.read_state()
    if not running_supervisor(instance):
        console.print(f"forgerl: instance {instance.name} is not up")
        sys.exit(3)
    answers = asyncio.run(_probe_all(instance, state["children"]))
    table = Table(title=f"instance {instance.name} · {instance.dir}", title_justify="left", box=None)
    for column in ("child", "state", "pid", "restarts", "memory", "at"):
        table.add_column(column, justify="right" if column in ("pid", "restarts", "memory") else "left")
    for child, answer in zip(state["children"], answers, strict=True):
        at = child["health"]["target"] if child["health"] else ""
        style = "green" if answer in ("healthy", "running") else "red"
        memory = f"{_rss_mb(instance, child['name'])} MB"
        table.add_row(
            child["name"], f"[{style}]{answer}[/]", str(child["pid"] or ""), str(child["restarts"]), memory, at
        )
    console.print(table)
    if any(answer not in ("healthy", "running") for answer in answers):
        sys.exit(1)


def _rss_mb(instance: Instance, name: str) -> int:
    total = 0
    for process in processes.marked(instance.dir, name):
        try:
            total += int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") >> 20


def show_log(instance_name: str | None, name: str, lines: int, *, follow: bool) -> None:
    """Raises UsageError naming the children that have a log."""
    instance = Instance.named(instance_name)
    path = instance.log_of(name)
    if not path.is_file():
        known = sorted(found.stem for found in instance.logs.glob("*.log"))
        raise UsageError(f"no log of {name!r}; allowed {', '.join(known) or 'none yet'}")
    with path.open(errors="replace") as log:
        for line in collections.deque(log, maxlen=lines):
            sys.stdout.write(line)
        sys.stdout.flush()
        while follow:
            line = log.readline()
            if line:
                sys.stdout.write(line)
                continue
            sys.stdout.flush()
            # A file has no readiness to wait for: look again soon, and end with the terminal.
            select.select([], [], [], 0.3)
