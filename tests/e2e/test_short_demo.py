"""A short demo on the whole stack: the reward rises, nothing is lost, engine and trainer agree."""

import json
import subprocess
import sys

import pytest

RUN_FILE = """
name = "short"
seed = 3

[model]
path = "examples/models/tiny-qwen3"

[[domains]]
name = "tool"
max_turns = 3

[evaluation]
tasks_per_domain = 40

[end]
steps = 10
"""


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_the_reward_rises(instance, tmp_path):
    file = tmp_path / "short.toml"
    file.write_text(RUN_FILE)
    command = [sys.executable, "-m", "loadtests.demo", "--json", "--file", str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["steps"] == 10
    assert said["reward_last"] > said["reward_first"] + 0.1
    assert said["heldout_after"]["tool"] > said["heldout_before"]["tool"]
    assert said["lost"] == said["duplicated"] == 0
    assert said["max_logprob_diff"] < 1e-3
    assert said["peak_rss_mb"] < 12_000
    assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000
