"""A run that keeps two steps, on the whole stack: it frees what is older by itself, and its record stays whole."""

import json
from pathlib import Path

import pytest

RUN = "pruned"
RUN_FILE = """
[model]
path = "examples/models/tiny-qwen3"

[[domains]]
name = "reasoning"
max_turns = 1

[scheduling]
group_size = 4
items_per_batch = 2
queue_items = 8
in_flight_items = 4
keep_steps = 2

[evaluation]
tasks_per_domain = 4

[end]
steps = 5
"""
EPISODES = f"select episode_id, kind, state, batch, pruned_at, trajectory_uri from episodes where run_id = '{RUN}'"


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_what_is_old_goes_by_itself_and_the_record_stays(instance, forgerl, tmp_path):
    def episodes() -> list[dict[str, object]]:
        return [json.loads(line) for line in forgerl("data", "query", EPISODES, "--json").stdout.splitlines()]

    def there(row: dict[str, object]) -> bool:
        return Path(str(row["trajectory_uri"]).removeprefix("file://")).is_file()

    file = tmp_path / "pruned.toml"
    file.write_text(RUN_FILE)
    forgerl("up", "--detach")
    forgerl("run", str(file), "--name", RUN, timeout_s=1200)
    rows = episodes()
    batches = {row["batch"] for row in rows if row["pruned_at"] and row["state"] == "trained"}
    assert batches == {1, 2, 3}, "five steps are done, two are kept"

    would = forgerl("data", "prune", RUN, "--keep-steps", "1", "--dry-run").stdout
    said = forgerl("data", "prune", RUN, "--keep-steps", "1").stdout
    assert "would be freed" in would and "are freed" in said and "closed by step 4 of 5" in said
    assert "not freed all of it" not in said
    rows = [row for row in episodes() if row["trajectory_uri"]]
    assert {row["batch"] for row in rows if row["pruned_at"] and row["state"] == "trained"} == {1, 2, 3, 4}
    # What came to gateway and rollout before the command's own event is freed, too.
    assert [row["episode_id"] for row in rows if there(row) == bool(row["pruned_at"])] == []
    assert any(row["kind"] == "evaluation" and row["pruned_at"] for row in rows)

    old = next(str(row["episode_id"]) for row in rows if row["batch"] == 1)
    why = forgerl("why", old).stdout
    assert "trajectory pruned: closed 2 steps ago or longer" in why and why.rstrip().endswith("trained")
    assert "answer" in forgerl("show", old).stdout, "small turns stand in the events"
    ledger = json.loads(forgerl("ledger", RUN, "--json").stdout)
    assert ledger["balanced"] and int(ledger["pruned"]) > 0
    forgerl("replay", RUN)
