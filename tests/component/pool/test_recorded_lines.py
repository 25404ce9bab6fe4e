"""Recorded episodes as lines: there and back, refusals by name, groups that are whole, ids that follow from content."""

import json
from pathlib import Path

import pytest
from forgerl.common.v1 import run_pb2, task_pb2

from services.cli.errors import UsageError
from services.cli.pool.importing import read_file, submissions
from services.cli.pool.lines import parse_line, to_line
from services.cli.pool.places import PoolPlaces
from services.contract.trajectory import decode
from services.kernel.blobs import Blobs

LINE = {
    "group": "g1",
    "domain": "tool",
    "task": {"environment": "tool", "task_id": "t-1", "payload": "{}"},
    "outcome": "completed",
    "answer": "42",
    "agent_wall_s": 1.5,
    "nodes": [
        {"parent": -1, "message": {"role": "user", "content": "?"}, "token_ids": [5, 6]},
        {"parent": 0, "message": {"role": "assistant", "content": "42"}, "token_ids": [7, 8], "logprobs": [-0.5, -1]},
    ],
}
SPEC = run_pb2.RunSpec(domains=[run_pb2.DomainSpec(name="tool")], scheduling=run_pb2.SchedulingSpec(group_size=2))


def changed(path: str, value: object) -> str:
    line = json.loads(json.dumps(LINE))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = line
    for part in way:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(line)


def test_a_line_there_and_back():
    parsed = parse_line(json.dumps(LINE), "f:1")
    assert (parsed.outcome, parsed.task.split) == (task_pb2.OUTCOME_COMPLETED, task_pb2.SPLIT_TRAIN)
    context, sampled = parsed.trajectory.nodes
    assert (context.token_ids, context.sampled) == ((5, 6), False)
    assert (sampled.turn, sampled.logprobs, sampled.temperature, sampled.spans[0].policy_step) == (0, (-0.5, -1), 1, -1)
    assert parse_line(to_line(parsed, {"episode_id": "e", "run_id": "r"}), "f:1") == parsed


def test_an_assistants_message_that_no_model_wrote_is_context():
    line = json.loads(json.dumps(LINE))
    said = {"parent": 0, "message": {"role": "assistant", "content": "41"}, "token_ids": [9], "sampled": False}
    line["nodes"].insert(1, said)
    parsed = parse_line(json.dumps(line), "f:1")
    assert [node.sampled for node in parsed.trajectory.nodes] == [False, False, True]
    assert parse_line(to_line(parsed, {}), "f:1") == parsed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "f:1: Expecting property name"),
        (changed("nodes.1.logprobs", None), "f:1: nodes[1].logprobs: given none; allowed one for each id of what"),
        (changed("nodes.1.logprobs", [-0.5]), "f:1: node 1: 1 logprobs for 2 ids"),
        (changed("nodes.1.logprobs", ["a", "b"]), "f:1: nodes[1].logprobs: given something else; allowed a list"),
        (changed("nodes.1.token_ids", [7, -8]), "f:1: nodes[1].token_ids: given one that is no token id"),
        (changed("nodes.1.parent", 4), "f:1: node 1: parent_id 4 does not come first"),
        (changed("nodes.1.reward", 1), "f:1: nodes[1]: reward: unknown; allowed call_id, finish_reason"),
        (changed("nodes", LINE["nodes"][:1]), "f:1: nodes: given none that was sampled"),
        (changed("answer", None), "f:1: answer: missing"),
        (changed("task.task_id", None), "f:1: task: task_id: missing"),
        (changed("outcome", "won"), "f:1: outcome: given 'won'; allowed completed, agent_timeout, context_overflow"),
        (changed("domain", 3), "f:1: domain: given int; allowed str"),
    ],
)
def test_a_wrong_line_is_refused_by_name(line, said):
    with pytest.raises(UsageError) as refused:
        parse_line(line, "f:1")
    assert str(refused.value).startswith(said)


def test_groups_are_whole_and_domains_known(tmp_path: Path):
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(LINE) + "\n")
    with pytest.raises(
        UsageError, match=r"group 'g1' of tool: given 1 episodes; allowed 2 \(scheduling.group_size\); --whole"
    ):
        read_file(file, SPEC)
    file.write_text("\n".join([json.dumps(LINE), *[changed("group", "g2")] * 2]))
    assert [line.group for _, line in read_file(file, SPEC, whole_only=True)] == ["g2", "g2"]
    file.write_text(changed("domain", "qa") + "\n")
    with pytest.raises(UsageError, match=r"f\.jsonl:1: domain: given 'qa'; allowed tool"):
        read_file(file, SPEC)
    file.write_text("\n")
    with pytest.raises(UsageError, match="given no episode in a whole group; allowed one or more of 2"):
        read_file(file, SPEC)
    with pytest.raises(UsageError, match="No such file"):
        read_file(tmp_path / "none.jsonl", SPEC)


async def test_ids_follow_from_content_and_equal_lines_are_two_samples(tmp_path: Path):
    file = tmp_path / "f.jsonl"
    file.write_text((json.dumps(LINE) + "\n") * 2)
    places = PoolPlaces("sqlite:///none/{service}.db", f"file://{tmp_path}/blobs")
    first, second = [await submissions(places, "r", read_file(file, SPEC)) for _ in range(2)]
    assert first == second
    one, other = first
    assert other.episode_id == f"{one.episode_id}.1"
    assert one.group_id == other.group_id == "r/import/tool/g1"
    kept = decode(await Blobs.open(places.blob_url).get(other.recorded.trajectory))
    assert (kept.episode_id, kept.run_id) == (other.episode_id, "r")
