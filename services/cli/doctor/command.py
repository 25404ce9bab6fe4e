"""Prints all findings; exit code 1 when one failed."""

import asyncio
import sys

from rich.console import Console
from rich.markup import escape

from services.cli.doctor.finding import Finding
from services.cli.doctor.logprobs import check_logprobs
from services.cli.doctor.machine import check_machine
from services.cli.supervisor.instance import Instance
from services.cli.supervisor.opening import running_supervisor
from services.client import AsyncClient, Places
from services.kernel.errors import ForgeError

_MARKS = {"ok": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]"}


async def _check_stack(instance: Instance) -> list[Finding]:
    async with AsyncClient(Places.of(instance.name), patience_s=5.0) as client:
        try:
            runs = await client.runs()
            found = [Finding("gateway", "ok", f"answers; {len(runs)} runs")]
            return found + [finding async for finding in check_logprobs(client)]
        except ForgeError as error:
            return [Finding("stack", "fail", error.message)]


def run_doctor(instance_name: str | None) -> None:
    """Never raises for what it finds."""
    instance = Instance.named(instance_name)
    console = Console(highlight=False)
    failed = False

    def show(finding: Finding) -> None:
        nonlocal failed
        failed = failed or finding.level == "fail"
        console.print(f"{_MARKS[finding.level]} {finding.what:<20} {escape(finding.says)}", soft_wrap=True)

    for finding in check_machine(instance):
        show(finding)
    if running_supervisor(instance):
        for finding in asyncio.run(_check_stack(instance)):
            show(finding)
    else:
        show(Finding("stack", "warn", f"instance {instance.name} is not up: engine and trainer were not compared"))
    if failed:
        sys.exit(1)
