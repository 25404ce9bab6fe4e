"""Seals, views, replicas and memory: an episode from submission to its trajectory."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import openai
import pytest
from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import run_service_pb2 as run_api
from gateway_engine import END, ScriptedEngine, raw_ids, says
from gateway_rig import Rig, sealed, spec, submission
from google.protobuf.message import Message

from services.contract import trajectory as contract
from services.gateway.application import BadSpec, IdTaken
from services.gateway.entrypoints.run_clock import RunClock
from services.kernel.envelope import Cause, Event
from services.kernel.errors import InvalidInput, NotFound, Refused
from services.kernel.inbox import Inbox

ASK = [{"role": "user", "content": "hi"}]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bus:
    """Delivers messages to a rig's intake as the broker would."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._versions = rig, dict[str, int]()
        self._inbox = Inbox(rig.store, "gateway")

    async def deliver(self, *messages: tuple[str, Message]) -> None:
        events = []
        for noun, message in messages:
            key = getattr(message, "episode_id", "") or message.run_id  # type: ignore[attr-defined]
            stream = f"{noun}/{key}"
            self._versions[stream] = self._versions.get(stream, 0) + 1
            events.append(Event(stream, self._versions[stream], NOON, message, Cause("c", "", "")))
        await self._inbox.handle(events, self._rig.intake.handle)
        await self._rig.views.catch_up()


def finished(episode_id: str = "ep-1") -> tuple[str, Message]:
    message = rollout_pb2.EpisodeFinished(
        episode_id=episode_id, run_id="r1", outcome=task_pb2.OUTCOME_COMPLETED, answer="42", agent_wall_s=1.5
    )
    return "rollout.episode", message


def step(number: int, reward: float = 0.0) -> tuple[str, Message]:
    return "trainer.policy", trainer_pb2.StepCompleted(run_id="r1", step=number, metrics={"reward_mean": reward})


async def talk(rig: Rig, engine: ScriptedEngine, key: str, text: str) -> None:
    engine.scripts.append(says(text))
    await rig.openai(key).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]


async def test_finished_episode_is_sealed_once_with_its_trajectory_and_calls_are_refused_after(
    rig: Rig, engine: ScriptedEngine
):
    key = await rig.episode()
    await talk(rig, engine, key, "one")
    await talk(rig, engine, key, "three")
    bus = Bus(rig)
    started = rollout_pb2.EpisodeStarted(episode_id="ep-1", run_id="r1", agent="tool_loop")
    await bus.deliver(("rollout.episode", started), finished())
    revoked = scheduler_pb2.EpisodeRevoked(episode_id="ep-1", run_id="r1", reason="late")
    await bus.deliver(("scheduler.admission", revoked))

    seal = sealed(await rig.published("gateway.episode/ep-1"))
    # user (with "assistant" after it) + "one" + end; user + "three" + end on the other branch.
    prompt = len(engine.generates[0]["token_ids"])
    assert (seal.node_count, seal.turn_count, seal.branch_count) == (3, 2, 2)
    assert seal.sampled_tokens == 4 + 6
    assert (seal.tree_tokens, seal.branch_tokens) == (prompt + 10, 2 * prompt + 10)
    trajectory = contract.decode(await rig.blobs.get(seal.trajectory))
    assert [node.token_ids for node in contract.sampled_nodes(trajectory)] == [
        (*raw_ids("one"), END),
        (*raw_ids("three"), END),
    ]
    with pytest.raises(openai.ConflictError):
        await rig.openai(key, retries=2).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    assert len(rig.sessions) == 0


async def test_a_call_in_flight_at_the_seal_is_not_recorded(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    script = says("abc", gate_at=1)
    engine.scripts.append(script)
    call = asyncio.create_task(rig.openai(key).chat.completions.create(model="m", messages=ASK))  # type: ignore[arg-type]
    await script.reached.wait()
    await Bus(rig).deliver(finished())
    with pytest.raises(openai.ConflictError):
        await call
    assert len(engine.aborted) == 1
    assert sealed(await rig.published("gateway.episode/ep-1")).turn_count == 0
    tree = await rig.tree()
    assert tree.closed == "finished" and tree.nodes == []


@pytest.mark.parametrize(
    ("message", "noun", "state"),
    [
        (
            rollout_pb2.EpisodeFailed(episode_id="ep-1", run_id="r1", outcome=task_pb2.OUTCOME_INFRA, detail="lost"),
            "rollout.episode",
            episode_api.EPISODE_STATE_FAILED,
        ),
        (
            scheduler_pb2.EpisodeRevoked(episode_id="ep-1", run_id="r1", reason="deadline"),
            "scheduler.admission",
            episode_api.EPISODE_STATE_CANCELLED,
        ),
    ],
)
async def test_failed_and_revoked_episodes_are_sealed_too(rig: Rig, message: Message, noun: str, state: int):
    await rig.episode()
    await Bus(rig).deliver((noun, message))
    assert sealed(await rig.published("gateway.episode/ep-1")).turn_count == 0
    episode = await rig.folds.episode("ep-1")
    assert (episode.state, episode.detail in ("lost", "deadline")) == (state, True)


async def test_cancel_before_the_start_seals_and_after_it_waits_for_the_agents_end(rig: Rig):
    await rig.episode()
    await rig.desk.submit(submission("ep-2"))
    bus = Bus(rig)
    started = rollout_pb2.EpisodeStarted(episode_id="ep-2", run_id="r1", agent="tool_loop")
    await bus.deliver(("rollout.episode", started))
    for name in ("ep-1", "ep-2", "ep-1"):
        await rig.desk.cancel(name, "enough")
    one, two = await rig.published("gateway.episode/ep-1"), await rig.published("gateway.episode/ep-2")
    assert [type(message).__name__ for message in one] == ["EpisodeSubmitted", "EpisodeCancelled", "TrajectorySealed"]
    assert [type(message).__name__ for message in two] == ["EpisodeSubmitted", "EpisodeCancelled"]
    await bus.deliver(
        ("scheduler.admission", scheduler_pb2.EpisodeRevoked(episode_id="ep-2", run_id="r1", reason="cancelled"))
    )
    assert sealed(await rig.published("gateway.episode/ep-2"))


async def test_view_follows_the_episode_to_its_score(rig: Rig):
    await rig.episode()
    bus = Bus(rig)
    admitted = scheduler_pb2.EpisodeAdmitted(episode_id="ep-1", run_id="r1")
    states = []
    score = score_pb2.Score(performance=1.0, failure_class="solved")
    scored = reward_pb2.EpisodeScored(episode_id="ep-1", run_id="r1", score=score)
    started = rollout_pb2.EpisodeStarted(episode_id="ep-1", run_id="r1", agent="tool_loop")
    for item in (
        ("scheduler.admission", admitted),
        ("rollout.episode", started),
        finished(),
        ("reward.score", scored),
    ):
        await bus.deliver(item)
        states.append((await rig.folds.episode("ep-1")).state)
    assert states == [
        episode_api.EPISODE_STATE_ADMITTED,
        episode_api.EPISODE_STATE_STARTED,
        episode_api.EPISODE_STATE_SEALED,
        episode_api.EPISODE_STATE_SCORED,
    ]
    episode = await rig.folds.episode("ep-1")
    assert (episode.answer, episode.agent_wall_s, episode.over) == ("42", 1.5, True)
    assert (rig.views.runs["r1"].submitted, rig.views.runs["r1"].sealed) == (1, 1)


async def test_any_replica_serves_any_call_and_a_key_has_one_sample_across_them(tmp_path: Path, engine: ScriptedEngine):
    one, two = Rig(tmp_path, [engine]), Rig(tmp_path, [engine])
    await one.start()
    await two.start()
    key = await one.episode()
    await talk(one, engine, key, "first")
    message = {"role": "assistant", "content": "first"}
    engine.scripts.append(says("second"))
    more = [*ASK, message, {"role": "user", "content": "more"}]
    await two.openai(key).chat.completions.create(model="m", messages=more)  # type: ignore[arg-type]
    # The first replica's copy is behind: its append conflicts, it reads again and goes on.
    engine.scripts.append(says("third"))
    await one.openai(key).chat.completions.create(model="m", messages=more)  # type: ignore[arg-type]
    tree = await one.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, 1, 2, 2]
    # The same key at both at once: both sample, one is recorded, both answer it.
    engine.scripts += [slow := says("left", gate_at=0), says("right")]
    ask = {"model": "m", "messages": more, "extra_headers": {"idempotency-key": "k"}}
    waiting = asyncio.create_task(one.openai(key).chat.completions.create(**ask))  # type: ignore[call-overload]
    await slow.reached.wait()
    fast = await two.openai(key).chat.completions.create(**ask)  # type: ignore[call-overload]
    slow.gate.set()
    assert (await waiting).choices[0].message.content == fast.choices[0].message.content == "right"
    assert len([node for node in (await one.tree()).nodes if node.mark and node.mark.idempotency_key == "k"]) == 1
    await one.stop()
    await two.stop()


async def test_memory_holds_no_more_episodes_than_allowed(tmp_path: Path, engine: ScriptedEngine):
    rig = Rig(tmp_path, [engine], open_episodes=3)
    await rig.start()
    await rig.episode("ep-0")
    for number in range(12):
        await rig.desk.submit(submission(f"ep-{number}"))
        await talk(rig, engine, rig.credentials.issue(f"ep-{number}", "r1").api_key, "x")
        assert len(rig.sessions) <= 3
    await talk(rig, engine, rig.credentials.issue("ep-0", "r1").api_key, "again")
    assert [node.message.content for node in (await rig.tree("ep-0")).nodes if node.sample] == ["x", "again"]
    await rig.stop()


async def test_large_turns_go_to_the_blob_store_and_come_back_whole(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.room_tokens = 1 << 20
    messages = [{"role": "user", "content": "x" * 20_000}]
    engine.scripts.append(says("ok"))
    await rig.openai(key).chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
    record = (await rig.published("gateway.turns/ep-1"))[0]
    assert record.HasField("tokens_blob") and not record.HasField("tokens")  # type: ignore[attr-defined]
    assert list((await rig.tree()).nodes[0].token_ids) == engine.generates[0]["token_ids"]


async def test_submissions_are_idempotent_by_content(rig: Rig):
    await rig.episode()
    assert await rig.desk.submit(submission("ep-9")) is True
    assert await rig.desk.submit(submission("ep-9")) is False
    with pytest.raises(IdTaken):
        await rig.desk.submit(submission("ep-9", group_id="another"))
    with pytest.raises(InvalidInput, match="domain: given 'nowhere'; allowed tool"):
        await rig.desk.submit(submission("ep-10", domain="nowhere"))
    with pytest.raises(NotFound):
        await rig.desk.submit(submission("ep-11", run_id="unknown"))
    with pytest.raises(InvalidInput, match="pinned_step"):
        await rig.desk.submit(submission("ep-12", kind=task_pb2.EPISODE_KIND_EVALUATION))
    large = task_pb2.Task(environment="tool", task_id="t", payload=bytes(16 * 1024 + 1))
    with pytest.raises(InvalidInput, match=r"task\.payload: given '16385 bytes'; allowed 16384 at most"):
        await rig.desk.submit(submission("ep-16", task=large))
    heldout = task_pb2.Task(environment="tool", task_id="t", split=task_pb2.SPLIT_HELDOUT)
    with pytest.raises(InvalidInput, match=r"task\.split: given 'SPLIT_HELDOUT'; allowed SPLIT_TRAIN in a training"):
        await rig.desk.submit(submission("ep-13", task=heldout))
    evaluation = {"kind": task_pb2.EPISODE_KIND_EVALUATION, "pinned_step": 0, "group_id": ""}
    assert await rig.desk.submit(submission("ep-14", task=heldout, **evaluation)) is True
    heldout.split = 7  # type: ignore[assignment]
    with pytest.raises(InvalidInput, match=r"task\.split: given 7"):
        await rig.desk.submit(submission("ep-15", task=heldout, **evaluation))


async def test_one_run_trains_at_a_time(rig: Rig):
    first = await rig.desk.create_run("r1", spec())
    assert first.spec.scheduling.group_size == 8
    assert (await rig.desk.create_run("r1", spec())).created_at == first.created_at
    with pytest.raises(IdTaken):
        other = spec()
        other.seed = 7
        await rig.desk.create_run("r1", other)
    with pytest.raises(Refused, match="r1 is still training"):
        await rig.desk.create_run("r2", spec())
    await rig.desk.stop_run("r1")
    assert (await rig.desk.create_run("r2", spec())).running
    with pytest.raises(Refused, match="r2 is still training"):
        await rig.desk.resume_run("r1", run_pb2.EndSpec(steps=9))
    bad = spec()
    bad.domains[0].environment = "nowhere"
    bad.scheduling.window_items = 99
    with pytest.raises(BadSpec) as refused:
        await rig.desk.create_run("r3", bad)
    assert len(refused.value.message.splitlines()) == 2


async def test_run_ends_by_steps_in_the_same_transaction_and_resumes(rig: Rig):
    await rig.desk.create_run("r1", spec())
    bus = Bus(rig)
    policy = trainer_pb2.PolicyPublished(run_id="r1", step=0, digest="d0", uri="file:///p0")
    await bus.deliver(("trainer.policy", policy), step(1), step(2))
    assert (await rig.folds.run("r1")).running
    await bus.deliver(step(3, 0.5))
    run = await rig.folds.run("r1")
    assert (run.state, run.end_reason, run.steps, run.metrics) == (
        run_api.RUN_STATE_ENDED,
        "steps",
        3,
        {"reward_mean": 0.5},
    )
    with pytest.raises(Refused):
        await rig.desk.submit(submission("late"))
    evaluation = submission("eval", kind=task_pb2.EPISODE_KIND_EVALUATION, group_id="", pinned_step=3)
    assert await rig.desk.submit(evaluation)
    with pytest.raises(BadSpec, match=r"end.steps: given 3; allowed above 3"):
        await rig.desk.resume_run("r1", run_pb2.EndSpec(steps=3))
    assert (await rig.desk.resume_run("r1", run_pb2.EndSpec(steps=5))).running
    assert (await rig.desk.resume_run("r1", run_pb2.EndSpec(steps=5))).running
    with pytest.raises(Refused, match="another end while it runs"):
        await rig.desk.resume_run("r1", run_pb2.EndSpec(steps=9))


async def test_run_ends_when_enough_episodes_were_trained_or_dropped(rig: Rig):
    counted = spec()
    counted.end.CopyFrom(run_pb2.EndSpec(episodes=20))
    await rig.desk.create_run("r1", counted)
    bus = Bus(rig)
    batch = scheduler_pb2.BatchAssembled(run_id="r1", batch=1, episode_count=12)
    dropped = scheduler_pb2.SampleDropped(run_id="r1", episode_ids=[str(n) for n in range(8)])
    await bus.deliver(("scheduler.batch", batch), ("scheduler.batch", dropped))
    assert (await rig.folds.run("r1")).running
    await bus.deliver(step(1))
    assert (await rig.folds.run("r1")).end_reason == "episodes"


async def test_run_ends_when_its_time_is_up(rig: Rig, eventually):
    timed = spec()
    timed.end.CopyFrom(run_pb2.EndSpec(time_s=0.2))
    following = asyncio.create_task(rig.views.run())
    clock = asyncio.create_task(RunClock(rig.desk, rig.folds, rig.views, rig.clock).run())
    await rig.desk.create_run("r1", timed)

    async def ended() -> bool:
        return (await rig.folds.run("r1")).end_reason == "time"

    await eventually(ended, timeout_s=5)
    for task in (clock, following):
        task.cancel()
    await asyncio.wait({clock, following})


async def test_removed_run_frees_its_trajectories(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    await talk(rig, engine, key, "one")
    await Bus(rig).deliver(finished())
    ids: Sequence[str] = ["ep-1"]
    with pytest.raises(Refused):
        await rig.desk.remove_run("r1", ids, rig.blobs)
    await rig.desk.stop_run("r1")
    seal = sealed(await rig.published("gateway.episode/ep-1"))
    count, size = await rig.desk.remove_run("r1", ids, rig.blobs)
    assert count == 1 and size > 0 and not await rig.blobs.exists(seal.trajectory)
    assert await rig.desk.remove_run("r1", ids, rig.blobs) == (0, 0)
    assert isinstance((await rig.published("gateway.run/r1"))[-1], gateway_pb2.RunRemoved)


async def test_members_of_a_group_share_one_render_of_their_first_prompt(rig: Rig, engine: ScriptedEngine):
    await rig.episode("ep-0")
    for number in range(1, 4):
        await rig.desk.submit(submission(f"ep-{number}"))
    keys = [rig.credentials.issue(f"ep-{number}", "r1").api_key for number in range(4)]
    engine.scripts += [says("x") for _ in keys]
    asks = [rig.openai(key).chat.completions.create(model="m", messages=ASK) for key in keys]  # type: ignore[arg-type]
    await asyncio.gather(*asks)
    assert len(engine.renders) == 1 and len(engine.generates) == 4
    engine.scripts.append(says("y"))
    await rig.openai(keys[0]).chat.completions.create(model="m", messages=ASK, temperature=0.3)  # type: ignore[arg-type]
    assert engine.generates[-1]["sampling_params"]["temperature"] == 0.3
