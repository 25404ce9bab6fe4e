"""Replay on recorded stores: everything is decided anew from the store alone, and what does not fit is named."""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from forgerl.events.v1 import gateway_pb2, trainer_pb2
from forgerl.trainer.v1 import report_pb2
from scheduler_bench import Bench, group, run_spec

from services.kernel.errors import NotFound, Permanent
from services.scheduler.adapters.journal import StoredJournal
from services.scheduler.domain.decisions import DropItem
from services.scheduler.domain.facts import Input, Ticked
from services.scheduler.entrypoints.replay import answer
from services.scheduler.ports import Entry


def asked(bench: Bench, run: str = "r", **more: str) -> argparse.Namespace:
    return argparse.Namespace(
        store=bench.url, run=run, **{"policy": None, "window": None, "against": None, "prunable": None, **more}
    )


async def play(bench: Bench, *order: int) -> None:
    """Four groups, ended one second apart in this order, each batch trained in half a second; then a deadline."""
    await bench.open(lookahead_steps=3)
    for index in range(5):
        await bench.feed(*group(f"r/tool/{index}"))
    step = 0
    for index in order:
        bench.wait(1)
        for member, performance in enumerate((1.0, 0.0)):
            await bench.finish(f"r/tool/{index}.{member}", performance)
        while len(await bench.batches()) > step:
            step += 1
            bench.wait(0.5)
            report = report_pb2.EpisodeReport(
                episode_id=f"r/tool/{index}.0", trained=True, total_reward=1.0, trained_tokens=9
            )
            await bench.train(step, report)
    bench.wait(200)
    await bench.scheduler.tick()


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    await play(bench, 3, 1, 0, 2)
    return bench


async def test_every_decision_and_every_manifest_comes_back(bench: Bench) -> None:
    found = await answer(asked(bench))
    assert (found["agrees"], found["first_disagreement"], found["balanced"]) == (True, "", True)
    assert found["inputs"] == await bench.store.version("scheduler.queue/r")
    assert found["batches"] == len(await bench.batches()) == 4


async def test_a_decision_that_the_rules_do_not_make_is_named(bench: Bench) -> None:
    version = await bench.store.version("scheduler.queue/r")
    now_s = bench.clock.now().timestamp()
    forged = Entry(Input(now_s, Ticked(), "", now_s), (DropItem("r/tool/9", None, "cancelled"),), "somebody")
    await bench.store.append([StoredJournal(bench.store).write("r", version, [forged])])
    found = await answer(asked(bench))
    assert not found["agrees"]
    assert found["first_disagreement"].startswith(f"scheduler.queue/r@{version + 1} (tick): recorded [DropItem(")
    assert found["first_disagreement"].endswith("decided []")


async def test_a_published_batch_that_differs_from_the_rebuilt_one_is_named(bench: Bench) -> None:
    sha256 = (await bench.batches())[1].manifest.sha256
    with sqlite3.connect(bench.url.removeprefix("sqlite:///")) as store:
        changed = store.execute(
            "UPDATE stored_events SET state = CAST(replace(state, CAST(? AS BLOB), CAST(? AS BLOB)) AS BLOB)"
            " WHERE originator_id = 'scheduler.batch/r'",
            (sha256, "0" * 64),
        )
        assert changed.rowcount >= 4
    found = await answer(asked(bench))
    assert not found["agrees"]
    assert found["first_disagreement"] == f"batch 2: published {'0' * 64}; rebuilt {sha256}"


async def test_what_would_have_happened(bench: Bench) -> None:
    found = await answer(asked(bench, policy="greedy", window="0.1"))
    assert found["rules"]["would_be"] == {"policy": "greedy", "window_items": 4, "auto": False}
    assert "greedy has no window: '0.1' changes nothing" in found["notes"]
    # Recorded, W = 2: 1 is taken first, then 0 at three seconds, and with it 3; greedy takes 3, 1, 0, 2.
    assert found["recorded"]["distance_max"] == 1
    assert found["would_be"]["distance_max"] == 3
    assert found["would_be"]["stall_share"] == 0.0 < found["recorded"]["stall_share"]
    assert found["retimed"]["items_taken"] == found["would_be"]["items_taken"] == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "lottery"}, "policy: given 'lottery'; allowed windowed_fifo, strict_fifo, greedy, version_window"),
        ({"window": "7"}, "window: given '7'; allowed auto, or a share of N above 0..1"),
        ({"window": "wide"}, "window: given 'wide'; allowed auto"),
    ],
)
async def test_rules_that_there_are_not_are_refused(bench: Bench, given: dict[str, str], message: str) -> None:
    with pytest.raises(Permanent, match=message):
        await answer(asked(bench, **given))


async def test_an_unknown_run_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(NotFound, match="run: given 'x'; the scheduler's store holds r"):
        await answer(asked(bench, run="x"))


async def second_run(bench: Bench) -> None:
    created = gateway_pb2.RunCreated(run_id="s", spec=run_spec(window_items=1, lookahead_steps=3))
    await bench.feed(created, trainer_pb2.PolicyPublished(run_id="s", step=0))


async def test_two_runs_side_by_side(bench: Bench) -> None:
    await second_run(bench)
    found = await answer(asked(bench, against="s"))
    assert found["settings"] == {"window_items": [2, 1]}
    assert [total["batches"] for total in found["totals"]] == [4, 0]
    assert [len(curve) for curve in found["curves"]] == [4, 0]
    assert found["curves"][0][0]["reward_mean"] == 1.0
    assert found["first_divergence"] is None


def forgerl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, with every service down and nothing but the stores."""
    environment = {**os.environ, "FORGERL_STORE_URL": f"sqlite:///{folder}/{{service}}.db", "COLUMNS": "120"}
    command = [sys.executable, "-m", "services.cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


async def test_the_commands_with_everything_down(bench: Bench, tmp_path: Path) -> None:
    await second_run(bench)
    await bench.store.close()
    done = forgerl(tmp_path, "replay", "r")
    assert (done.returncode, done.stderr) == (0, "")
    assert "are what the rules make of them, bit for bit" in " ".join(done.stdout.split())
    done = forgerl(tmp_path, "replay", "r", "--policy", "greedy", "--window", "0.1")
    assert "out of order, most items" in done.stdout
    assert "greedy has no window" in done.stdout
    done = forgerl(tmp_path, "diff", "r", "s", "--json")
    assert json.loads(done.stdout)["settings"] == {"window_items": [2, 1]}
    assert "reward" in forgerl(tmp_path, "diff", "r", "s").stdout
    done = forgerl(tmp_path, "replay", "x")
    assert (done.returncode, done.stderr) == (1, "forgerl: run: given 'x'; the scheduler's store holds r, s\n")
