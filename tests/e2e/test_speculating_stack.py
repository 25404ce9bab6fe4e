"""The whole stack with engines that speculate: each policy brings its head, and no log-probability is another's."""

import csv
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_kill_everything import state_of

from services.cli.demo.audit import audit

RUN = "speculating"
STEPS = 6
RUN_FILE = f"""
[model]
path = "examples/models/tiny-qwen3"

[[domains]]
name = "reasoning"
max_turns = 1

[scheduling]
group_size = 8
items_per_batch = 4
queue_items = 12
in_flight_items = 6

[training]
mtp_top_k = 16

[evaluation]
tasks_per_domain = 0

[end]
steps = {STEPS}
"""


@pytest.mark.engine
@pytest.mark.timeout(1200)
async def test_a_run_whose_engine_speculates_with_the_head_of_each_policy(instance, forgerl, tmp_path, monkeypatch):
    monkeypatch.setenv("FORGERL_ENGINE_SPECULATIVE_TOKENS", "1")
    file = tmp_path / "speculating.toml"
    file.write_text(RUN_FILE)
    forgerl("up", "--detach")
    forgerl("run", str(file), "--name", RUN, timeout_s=900)
    guessed = _engine_counters(instance)
    found = await audit(instance.dir, RUN)
    with (instance.dir / "runs" / RUN / "metrics.csv").open() as lines:
        steps = list(csv.DictReader(lines))
    forgerl("down")
    drafts, accepted = (guessed[f"vllm:spec_decode_num_{name}_total"] for name in ("drafts", "accepted_tokens"))
    diff = max(float(step["logprob_diff_max"]) for step in steps)
    taught = [round(float(step["mtp_acceptance"]), 3) for step in steps]
    swaps = [line for line in _lines(instance, "inference") if "policy.swapped" in line]
    print(f"{drafts:.0f} verifications, {1 + accepted / drafts:.3f} tokens each; {len(swaps)} swaps")
    print(f"largest log-probability difference {diff:.2g}; mtp_acceptance {taught}; {found.trained} trained")
    assert len(steps) == STEPS and found.lost == {} and found.duplicated == {}
    assert found.trained >= STEPS * 32 / 2
    assert diff < 1e-3
    assert not [line for line in _lines(instance, "inference") if "speculation.off" in line]
    assert len(swaps) >= STEPS
    # A head that starts as the policy's last layer is seldom right; one that is trained is, more often.
    assert drafts > 1000 and accepted > 0.05 * drafts
    assert sum(taught[3:]) > sum(taught[:3]) + 0.1


def _engine_counters(instance) -> dict[str, float]:
    where = urlsplit(state_of(instance, "engine")["health"]["target"])
    token = instance.read_secrets()["FORGERL_TOKEN"]
    answer = httpx.get(f"http://{where.netloc}/metrics", headers={"authorization": f"Bearer {token}"}, timeout=30.0)
    families = text_string_to_metric_families(answer.raise_for_status().text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def _lines(instance, child: str) -> list[str]:
    return instance.log_of(child).read_text().splitlines()
