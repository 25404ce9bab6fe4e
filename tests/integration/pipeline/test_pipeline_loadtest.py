"""The load test in its short forms: every episode comes through once, although the scheduler is killed -9."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.broker
ROOT = Path(__file__).parents[3]
KEYS = {
    "broker",
    "episodes_per_s",
    "episodes_per_s_temporal",
    "bare_temporal_per_s",
    "lost",
    "duplicated",
    "peak_rss_mb",
}


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    command = [sys.executable, "-m", "loadtests.pipeline", "--json", "--quick", "--broker", "tansu"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert set(result) >= KEYS
    legs = {leg["run_id"]: leg for leg in result["runs"][0]["legs"]}
    assert (legs["timed"]["episodes"], legs["killed"]["episodes"]) == (256, 384)
    assert legs["killed"]["killed"] == "scheduler"
    assert [(leg["lost"], leg["duplicated"]) for leg in legs.values()] == [(0, 0)] * 3
    assert result["episodes_per_s"] > 0 and result["peak_rss_mb"] > 0


def test_with_a_workflow_an_episode_nothing_is_lost_either_and_bare_temporal_stands_beside_it() -> None:
    """The smallest form: one batch, and every form of bare Temporal before and after it."""
    command = [sys.executable, "-m", "loadtests.pipeline", "--json", "--only-temporal", "--batches", "1"]
    ran = subprocess.run(
        [*command, "--broker", "tansu"], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert set(result) >= KEYS
    legs = {leg["run_id"]: leg for leg in result["runs"][0]["legs"]}
    assert list(legs) == ["warm", "temporal-warm", "temporal"]
    assert [(leg["episodes"], leg["lost"], leg["duplicated"]) for leg in legs.values()] == [(128, 0, 0)] * 3
    bare = result["runs"][0]["bare"]
    assert {form: one["workflows"] for form, one in bare.items()} == {"plain": 256, "lean": 256, "step": 256}
    assert result["bare_temporal_per_s"] == bare["plain"]["per_s"] > 0
    assert result["bare_temporal_lean_per_s"] == bare["lean"]["per_s"] > 0
    assert result["episodes_per_s_temporal"] == legs["temporal"]["per_s"] > 0
