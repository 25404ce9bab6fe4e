"""Every process of the stack is killed -9 once while a run is on: nothing is lost, nothing happens twice."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.cli.demo.audit import audit
from services.cli.supervisor.instance import Instance
from services.client import AsyncClient, Places
from services.kernel.errors import ForgeError

RUN = "chaos"
RUN_FILE = """
[model]
path = "examples/models/tiny-qwen3"

[[domains]]
name = "tool"
max_turns = 3

[[domains]]
name = "reasoning"
max_turns = 1

[scheduling]
group_size = 4
items_per_batch = 4
queue_items = 12
in_flight_items = 6

[evaluation]
tasks_per_domain = 0

[end]
steps = 100000
"""
_BACK_S = 240.0
_STEPS_AFTER = 3


def state_of(instance: Instance, name: str) -> dict:
    return next(child for child in instance.read_state()["children"] if child["name"] == name)


async def until(check, timeout_s: float, what: str):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            value = check()
            value = await value if asyncio.iscoroutine(value) else value
            if value:
                return value
        except ForgeError:
            pass
        await asyncio.sleep(0.25)
    raise AssertionError(f"not within {timeout_s:g} s: {what}")


async def steps_of(client: AsyncClient) -> int:
    return (await client.run(RUN)).steps


async def kill_each_once(instance: Instance, seed: int) -> None:
    """In a random order, each a random moment after the one before has come back."""
    chance = random.Random(seed)
    names = [child["name"] for child in instance.read_state()["children"]]
    chance.shuffle(names)
    for name in names:
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        before = state_of(instance, name)
        print(f"kill -9 {name} ({before['pid']})", flush=True)
        os.kill(before["pid"], signal.SIGKILL)
        await until(
            lambda name=name, before=before: (
                state_of(instance, name)["state"] == "healthy" and state_of(instance, name)["pid"] != before["pid"]
            ),
            _BACK_S,
            f"{name} healthy again",
        )


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_nothing_is_lost_when_everything_is_killed_once(instance, forgerl, tmp_path):
    file = tmp_path / "chaos.toml"
    file.write_text(RUN_FILE)
    seed = int(os.environ.get("FORGERL_CHAOS_SEED") or random.randrange(10_000))
    print(f"seed {seed}")
    forgerl("up", "--detach")
    command = [sys.executable, "-m", "services.cli", "run", str(file), "--name", RUN]
    driver = start(command, tmp_path / "driver.log")
    try:
        async with AsyncClient(Places.of("e2e"), patience_s=120) as client:
            await until(lambda: _some_step(client), 300, "a first step")
            await kill_each_once(instance, seed)
            reached = await steps_of(client)
            await until(lambda: _past(client, reached + _STEPS_AFTER), 300, f"{_STEPS_AFTER} steps after the last kill")
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-2000:]
            await client.stop_run(RUN)
            assert await asyncio.to_thread(driver.wait, 180) == 0
            await until(lambda: _settled(client), 180, "nothing in flight")
            ledger = await client.ledger(RUN)
    finally:
        driver.kill()
        driver.wait()
    forgerl("down")
    found = await audit(instance.dir, RUN)
    assert found.lost == {} and found.duplicated == {}
    assert found.trained == ledger.trained > 0
    assert found.submitted == ledger.submitted == ledger.trained + sum(ledger.dropped.values()) + ledger.in_flight


async def _some_step(client: AsyncClient) -> bool:
    return await steps_of(client) >= 1


async def _past(client: AsyncClient, steps: int) -> bool:
    return await steps_of(client) >= steps


async def _settled(client: AsyncClient) -> bool:
    ledger = await client.ledger(RUN)
    return (await client.window(RUN)).in_flight_items == 0 and ledger.in_flight == 0
