"""A black-box agent on the whole stack: its calls become trained turns, also when rollout and gateway are killed."""

import json
import os
import signal
import subprocess
import sys

import pytest
from test_kill_everything import start, state_of, until

from services.cli.demo.audit import audit
from services.client import AsyncClient, Places

RUN = "blackbox"
RUN_FILE = """
[model]
path = "examples/models/tiny-qwen3"

[[domains]]
name = "tool"
agent = "openai_script"

[scheduling]
group_size = 4
items_per_batch = 1
queue_items = 4
in_flight_items = 2

[evaluation]
tasks_per_domain = 0

[end]
steps = 3
"""


async def kill(instance, name: str) -> None:
    before = state_of(instance, name)["pid"]
    os.kill(before, signal.SIGKILL)
    await until(
        lambda: state_of(instance, name)["state"] == "healthy" and state_of(instance, name)["pid"] != before,
        240,
        f"{name} healthy again",
    )


@pytest.mark.e2e
@pytest.mark.timeout(1800)
async def test_a_plain_script_is_trained_though_its_hosts_die(instance, forgerl, tmp_path):
    file = tmp_path / "blackbox.toml"
    file.write_text(RUN_FILE)
    forgerl("up", "--detach")
    driver = start([sys.executable, "-m", "services.cli", "run", str(file), "--name", RUN], tmp_path / "driver.log")
    try:
        async with AsyncClient(Places.of("e2e"), patience_s=120) as client:
            await until(lambda: _sealed(client), 300, "a sealed episode")
            for name in ("rollout", "gateway"):
                await kill(instance, name)
            code = await _end(driver)
            assert code == 0, (tmp_path / "driver.log").read_text()[-2000:]
            run = await client.run(RUN)
            ledger = await client.ledger(RUN)
            trained = await _trained_episode(client)
    finally:
        driver.kill()
        driver.wait()
    assert run.steps == 3
    found = await audit(instance.dir, RUN)
    assert found.lost == {} and found.duplicated == {}
    assert found.trained == ledger.trained > 0
    shown = forgerl("show", trained).stdout
    assert "tokens" in shown and "policy" in shown, shown
    spans = forgerl("trace", trained).stdout
    for part in ("gateway", "rollout", "reward", "optimiser.step"):
        assert part in spans, f"{part} is missing from the trace:\n{spans}"
    await _train_what_was_recorded(forgerl, tmp_path)
    forgerl("down")


async def _train_what_was_recorded(forgerl, folder) -> None:
    """The pool's episodes, taken out and into another run as offline data, make a step there."""
    out = folder / "recorded.jsonl"
    forgerl("data", "export", RUN, str(out), "--format", "recorded")
    async with AsyncClient(Places.of("e2e"), patience_s=120) as client:
        spec = AsyncClient.read_run_file(folder / "blackbox.toml")
        spec.end.steps = 1
        await client.create_run("offline", spec)
        # A member that was lost with its host is infra, and not recorded as data.
        forgerl("data", "import", "offline", str(out), "--whole-groups")
        await until(lambda: _trained_offline(client), 300, "a step on recorded episodes")
    rows = forgerl("data", "query", "select count(*) n from batches where trained", "--run", "offline", "--json")
    assert json.loads(rows.stdout)["n"] >= 2


async def _trained_offline(client: AsyncClient) -> bool:
    return (await client.run("offline")).steps == 1


async def _sealed(client: AsyncClient) -> bool:
    return (await client.run(RUN)).episodes_sealed >= 1


async def _end(driver: subprocess.Popen[bytes]) -> int:
    await until(lambda: driver.poll() is not None, 600, "the run's end")
    return driver.wait()


async def _trained_episode(client: AsyncClient) -> str:
    async for view in client.episodes(RUN):
        episode = view.submission.episode_id
        if view.sampled_tokens and (await client.why(episode)).verdict.startswith("trained"):
            return episode
    raise AssertionError("no episode was trained")
