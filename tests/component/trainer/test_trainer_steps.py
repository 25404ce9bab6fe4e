"""Runs, steps, restarts and refusals of a whole trainer, on real stores and a tiny model."""

import asyncio
import csv
import hashlib
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forgerl.events.v1.gateway_pb2 import RunEnded, RunRemoved
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted, StepFailed
from forgerl.trainer.v1.report_pb2 import StepReport
from google.protobuf.message import Message
from trainer_bench import RUN, Bench, make_model, two_turns
from transformers import Qwen3ForCausalLM

from services.kernel.envelope import Event
from services.kernel.errors import Transient
from services.trainer.domain.run_state import kept_checkpoints, kept_policies


async def take_batch(bench: Bench, number: int) -> Event:
    """Two groups of two, drawn from the newest policy."""
    policies = [m for m in await bench.published() if isinstance(m, PolicyPublished)]
    model = bench.policy_model(policies[-1])
    step = policies[-1].step
    groups = [
        [(two_turns(f"e{number}.{g}.{m}", 100 * number + 10 * g + m, model, step), float(m == g), True) for m in (0, 1)]
        for g in (0, 1)
    ]
    return await bench.batch(number, groups)


def kinds(messages: list[Message]) -> list[str]:
    return [type(message).__name__ for message in messages]


def files_under(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


async def test_a_run_begins_with_the_model_as_policy_0(bench: Bench, model_folder: Path):
    messages = await bench.create(model_folder)
    assert kinds(messages) == ["PolicyPublished"]
    policy = messages[0]
    assert isinstance(policy, PolicyPublished)
    assert (policy.step, len(policy.digest)) == (0, 64)
    folder = Path(policy.uri.removeprefix("file://"))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files_under(folder)
    original = Qwen3ForCausalLM.from_pretrained(model_folder)
    for name, weight in bench.policy_model(policy).state_dict().items():
        assert torch.equal(weight, original.state_dict()[name])


async def test_a_step_publishes_both_facts_and_says_what_it_did(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    bench.clock.advance(2.0)
    messages = await bench.feed(await take_batch(bench, 1))
    assert kinds(messages) == ["PolicyPublished", "StepCompleted", "PolicyPublished"]
    first, completed, policy = messages
    assert isinstance(first, PolicyPublished)
    assert isinstance(completed, StepCompleted)
    assert isinstance(policy, PolicyPublished)
    assert (completed.step, policy.step) == (1, 1)
    assert policy.digest != first.digest
    metrics = completed.metrics
    assert metrics["reward_mean"] == pytest.approx(0.5 * (1 + 0.02 * 0.5))
    assert metrics["success.tool"] == 0.5
    assert metrics["logprob_diff_max"] < 1e-4
    assert metrics["fresh_tokens"] == metrics["tokens"] == completed.trained_tokens
    assert metrics["staleness_max"] == 0.0
    assert metrics["tokens_per_s"] == pytest.approx(completed.trained_tokens / 2.0)
    report = StepReport.FromString(await bench.blobs.get(completed.report))
    assert [e.episode_id for e in report.episodes] == ["e1.0.0", "e1.0.1", "e1.1.0", "e1.1.1"]
    assert all(len(e.turn_advantages) == 2 and e.trained for e in report.episodes)
    # right against wrong: 1.01 - 0 and 0 - 1.01
    assert [e.mean_advantage for e in report.episodes] == pytest.approx([1.01, -1.01, -1.01, 1.01])


async def test_the_steps_span_links_to_every_episode(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    await bench.feed(await take_batch(bench, 1))
    (span,) = bench.spans.get_finished_spans()
    assert span.name == "optimiser.step"
    assert f"{span.context.trace_id:032x}" == "1" * 32
    assert span.attributes == {"run_id": RUN, "step": 1}
    traces = [hashlib.md5(name.encode()).hexdigest() for name in ("e1.0.0", "e1.0.1", "e1.1.0", "e1.1.1")]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == traces


async def test_training_raises_the_probability_of_what_was_right(bench: Bench, model_folder: Path):
    await bench.create(model_folder, learning_rate=1e-3)
    before = bench.policy_model((await bench.published())[0])
    trajectory = two_turns("good", 1, before)
    other = two_turns("bad", 2, before)
    messages = await bench.feed(await bench.batch(1, [[(trajectory, 1.0, True), (other, 0.0, True)]]))
    after = two_turns("good", 1, bench.policy_model(messages[-1]))
    assert sum(after.nodes[3].logprobs) > sum(trajectory.nodes[3].logprobs)
    worse = two_turns("bad", 2, bench.policy_model(messages[-1]))
    assert sum(worse.nodes[3].logprobs) < sum(other.nodes[3].logprobs)


async def test_resumed_training_equals_training_in_one_go(tmp_path: Path, model_folder: Path):
    digests: list[list[str]] = []
    for name, restart_after in (("one", 0), ("two", 2)):
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name)
        await bench.create(model_folder)
        for number in (1, 2, 3):
            await bench.feed(await take_batch(bench, number))
            if number == restart_after:
                bench.restart()
        digests.append([m.digest for m in await bench.published() if isinstance(m, PolicyPublished)])
    assert len(set(digests[0])) == 4
    assert digests[0] == digests[1]


@pytest.mark.parametrize("point", ["saving", "publishing", "committing"])
async def test_killed_between_checkpoint_and_commit_it_ends_with_the_same_weights(
    tmp_path: Path, model_folder: Path, point: str
):
    roots = [tmp_path / name for name in ("whole", "killed")]
    for root in roots:
        root.mkdir()
    whole = Bench(roots[0])
    await whole.create(model_folder)
    for number in (1, 2, 3):
        await whole.feed(await take_batch(whole, number))
    program = [
        sys.executable,
        str(Path(__file__).with_name("killed_trainer.py")),
        str(roots[1]),
        str(model_folder),
        point,
    ]
    child = await asyncio.create_subprocess_exec(
        *program, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert child.stdout is not None
    async with asyncio.timeout(120):
        while point.encode() not in (line := await child.stdout.readline()):
            assert line, "the child ended early"
    child.kill()
    await child.wait()
    resumed = Bench(roots[1], versions={f"scheduler.batch/{RUN}": 2})
    assert [m.step for m in await resumed.published() if isinstance(m, StepCompleted)] == [1, 2]
    await resumed.feed(await take_batch(resumed, 3))
    ends = [[m.digest for m in await b.published() if isinstance(m, PolicyPublished)] for b in (whole, resumed)]
    assert len(ends[0]) == 4
    assert ends[0] == ends[1]
    # What the lost attempt left behind is gone, and what the events name is there.
    (policy,) = [m for m in await resumed.published() if isinstance(m, PolicyPublished) and m.step == 3]
    assert await resumed.blobs.fetch_folder(policy.uri, tmp_path)
    assert not list((roots[1] / "checkpoints" / RUN).glob("tmp-*"))


async def test_a_crash_before_the_commit_trains_the_batch_once_in_the_end(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    await bench.feed(await take_batch(bench, 1))
    event = await take_batch(bench, 2)
    lost = await bench.trainer.handle([event])  # its writes never reach the store
    assert kinds(await bench.published()) == ["PolicyPublished", "StepCompleted", "PolicyPublished"]
    bench.restart()
    messages = await bench.feed(event)
    assert isinstance(messages[-1], PolicyPublished)
    assert messages[-1].digest == lost[0].messages[1].digest
    assert len([m for m in messages if isinstance(m, StepCompleted)]) == 2


async def test_without_a_restart_a_lost_commit_is_trained_from_the_committed_weights(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    event = await take_batch(bench, 1)
    lost = await bench.trainer.handle([event])
    messages = await bench.feed(event)
    assert messages[-1].digest == lost[0].messages[1].digest


async def test_a_batch_that_comes_twice_is_trained_once(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    event = await take_batch(bench, 1)
    first = await bench.feed(event)
    assert await bench.feed(event) == first
    assert list(await bench.trainer.handle([event])) == []


async def test_a_batch_ahead_of_its_turn_is_tried_again_later(bench: Bench, model_folder: Path):
    with pytest.raises(Transient):
        await bench.trainer.handle([await bench.batch(1, [])])
    await bench.create(model_folder)
    with pytest.raises(Transient, match="batch 3 came, 1 is missing"):
        await bench.trainer.handle([await bench.batch(3, [])])


async def test_an_episode_that_stands_twice_is_trained_once_and_infra_never(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    model = bench.policy_model((await bench.published())[0])
    a, b, lost = (two_turns(name, seed, model) for seed, name in enumerate(("a", "b", "lost")))
    group = [(a, 1.0, True), (b, 0.0, True), (a, 1.0, True), (lost, 1.0, False)]
    messages = await bench.feed(await bench.batch(1, [group]))
    completed = messages[1]
    assert isinstance(completed, StepCompleted)
    report = StepReport.FromString(await bench.blobs.get(completed.report))
    assert {e.episode_id: e.why_not for e in report.episodes if not e.trained} == {"a": "duplicate", "lost": "infra"}
    tokens = sum(len(n.token_ids) for t in (a, b) for n in t.nodes if n.sampled)
    assert completed.trained_tokens == tokens


@pytest.mark.parametrize("where", ["engine logprob", "weights"])
async def test_not_a_number_stops_the_step_and_names_the_episode(bench: Bench, tmp_path: Path, where: str):
    folder = make_model(tmp_path / "model")
    if where == "weights":
        model = Qwen3ForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            model.model.embed_tokens.weight[46] = float("nan")
        model.save_pretrained(folder)
    await bench.create(folder, mismatch_limit=0.0)
    clean = Qwen3ForCausalLM.from_pretrained(make_model(tmp_path / "clean")).eval()
    good, bad = two_turns("good", 1, clean), two_turns("bad", 2, clean)
    for trajectory in (good, bad):
        assert all(46 not in node.token_ids for node in trajectory.nodes)
    turn = bad.nodes[1]
    if where == "weights":
        broken = replace(bad.nodes[0], token_ids=(46, *bad.nodes[0].token_ids[1:]))
        bad = replace(bad, nodes=(broken, *bad.nodes[1:]))
    else:
        broken = replace(turn, logprobs=(math.nan, *turn.logprobs[1:]))
        bad = replace(bad, nodes=(bad.nodes[0], broken, *bad.nodes[2:]))
    messages = await bench.feed(await bench.batch(1, [[(good, 1.0, True), (bad, 0.0, True)]]))
    failed = messages[-1]
    assert isinstance(failed, StepFailed)
    assert failed.step == 1
    assert "episode bad" in failed.detail
    assert "not finite" in failed.detail


async def test_after_a_refusal_nothing_more_is_trained(bench: Bench, model_folder: Path):
    await bench.create(model_folder, mismatch_limit=0.01)
    model = bench.policy_model((await bench.published())[0])
    off = []
    for seed, name in enumerate(("a", "b")):
        trajectory = two_turns(name, seed, model)
        nodes = tuple(replace(n, logprobs=tuple(p - 0.05 for p in n.logprobs)) for n in trajectory.nodes)
        off.append(replace(trajectory, nodes=nodes))
    messages = await bench.feed(await bench.batch(1, [[(off[0], 1.0, True), (off[1], 0.0, True)]]))
    failed = messages[-1]
    assert isinstance(failed, StepFailed)
    assert failed.detail.startswith("mismatch guard: mean |log-probability difference| of engine and trainer is 0.05 ")
    assert await bench.feed(await take_batch(bench, 2)) == messages


async def test_stale_tokens_are_counted_as_stale_not_as_mismatch(bench: Bench, model_folder: Path):
    await bench.create(model_folder, mismatch_limit=0.01)
    event = await take_batch(bench, 1)
    old = bench.policy_model((await bench.published())[0])
    await bench.feed(event)
    group = [(two_turns(n, s, old, step=0), p, True) for s, (n, p) in enumerate((("a", 1.0), ("b", 0.0)))]
    messages = await bench.feed(await bench.batch(2, [group]))
    completed = messages[-2]
    assert isinstance(completed, StepCompleted)
    assert completed.metrics["fresh_tokens"] == 0
    assert completed.metrics["staleness_max"] == 1.0


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("missing", "allowed a Hugging Face model directory"),
        ("template", "has no chat template"),
        ("empty", "config.json"),
        ("half copied", "can't be loaded: Error while deserializing header"),
    ],
)
async def test_a_model_that_cannot_be_used_is_one_clear_line(bench: Bench, tmp_path: Path, kind: str, line: str):
    folder = tmp_path / kind
    if kind == "template":
        make_model(folder, template=None)
    elif kind == "empty":
        folder.mkdir()
    elif kind == "half copied":
        weights = make_model(folder) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    messages = await bench.create(folder)
    assert kinds(messages) == ["StepFailed"]
    failed = messages[0]
    assert isinstance(failed, StepFailed)
    assert (failed.step, "\n" in failed.detail) == (0, False)
    assert str(folder) in failed.detail
    assert line in failed.detail


async def test_old_checkpoints_and_policies_go_and_the_named_ones_stay(bench: Bench, model_folder: Path):
    await bench.create(model_folder, keep_checkpoints=2)
    (bench.root / "checkpoints" / RUN / "tmp-lost").mkdir(parents=True)
    for number in range(1, 8):
        await bench.feed(await take_batch(bench, number))
    names = sorted(path.name[:11] for path in (bench.root / "checkpoints" / RUN).iterdir())
    assert names == ["step-000005", "step-000006", "step-000007"]  # the oldest goes once step 7 is committed
    policies = sorted(
        name[:6] for name in files_under(bench.root / "blobs" / "policies" / RUN) if "safetensors" in name
    )
    assert policies == ["000000", "000003", "000004", "000005", "000006", "000007"]


@pytest.mark.parametrize(
    ("name", "damage", "detail"),
    [
        ("optimiser/__0_0.distcp", b"torn", "optimiser/__0_0.distcp is missing or corrupt"),
        ("model/model.safetensors", None, "model/model.safetensors is missing or corrupt"),
        ("checkpoint.json", b"{}", "its manifest is not the one that was committed"),
        ("checkpoint.json", None, ""),
    ],
)
async def test_a_corrupt_checkpoint_is_refused_by_name(
    bench: Bench, model_folder: Path, name: str, damage: bytes | None, detail: str
):
    await bench.create(model_folder)
    messages = await bench.feed(await take_batch(bench, 1))
    completed = messages[1]
    assert isinstance(completed, StepCompleted)
    path = Path(completed.checkpoint_uri.removeprefix("file://")) / name
    path.unlink() if damage is None else path.write_bytes(damage)
    event = await take_batch(bench, 2)
    bench.restart()
    failed = (await bench.feed(event))[-1]
    assert isinstance(failed, StepFailed)
    expected = f": {detail}" if detail else " is missing"
    assert failed.detail == f"checkpoint {completed.checkpoint_uri}{expected}"


async def test_the_policy_that_a_run_ended_with_stays(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    await bench.feed(await take_batch(bench, 1))
    for _ in range(2):
        await bench.feed(bench.event(f"gateway.run/{RUN}", RunEnded(run_id=RUN, reason="steps")))
    for number in range(2, 8):
        await bench.feed(await take_batch(bench, number))
    state = await bench.runs.load(RUN)
    assert kept_policies(state) == {0: "first", 1: "pinned", 4: "newest", 5: "newest", 6: "newest", 7: "newest"}
    for policy in state.policies:
        there = "model.safetensors" in files_under(Path(policy.uri.removeprefix("file://")))
        # The one that the last step pushed out goes when the next step begins.
        assert there == (policy.step in kept_policies(state) or policy.step == 3)
        assert policy.size_bytes > 1000


async def test_every_kept_checkpoint_has_its_policy(bench: Bench, model_folder: Path):
    await bench.create(model_folder, keep_checkpoints=6)
    for number in range(1, 8):
        await bench.feed(await take_batch(bench, number))
    state = await bench.runs.load(RUN)
    assert sorted(kept_policies(state)) == [0, 2, 3, 4, 5, 6, 7]
    assert len(kept_checkpoints(state)) == 6


async def test_curves_are_written_whole_each_time(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    for number in (1, 2):
        await bench.feed(await take_batch(bench, number))
    with (bench.root / "runs" / RUN / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2"]
    assert float(rows[1]["tokens"]) > 0
    assert list((bench.root / "runs" / RUN / "tensorboard").iterdir())


async def test_a_removed_run_leaves_nothing(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    await bench.feed(await take_batch(bench, 1))
    await bench.feed(bench.event(f"gateway.run/{RUN}", RunRemoved(run_id=RUN)))
    assert not (bench.root / "checkpoints" / RUN).exists()
    assert not (bench.root / "runs" / RUN).exists()
    assert not list((bench.root / "blobs" / "policies").rglob("*.safetensors"))
    state = await bench.runs.load(RUN)
    assert state.freed
    freed = (await bench.store.read(f"trainer.run/{RUN}"))[-1].message
    assert freed.freed_bytes > 0


async def test_the_checkpoints_manifest_covers_every_file(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    completed = (await bench.feed(await take_batch(bench, 1)))[1]
    assert isinstance(completed, StepCompleted)
    folder = Path(completed.checkpoint_uri.removeprefix("file://"))
    manifest = json.loads((folder / "checkpoint.json").read_text())
    on_disk = files_under(folder)
    assert set(manifest["files"]) == on_disk - {"checkpoint.json"}
    assert manifest["last_batch"] == 1
