"""Episodes that were run elsewhere: refused by name, sealed as what they are, never taken for fresh."""

from dataclasses import replace
from math import inf

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2, trainer_pb2
from gateway_rig import Rig, sealed, spec, submission
from test_gateway_episodes import Bus, finished

from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, decode, encode
from services.gateway.application import IdTaken
from services.kernel.errors import InvalidInput

SAMPLED = Node(
    *(1, 0, "sampled", 0, "assistant", '{"role":"assistant","content":"42"}', (7, 8, 9), (-0.5, -0.1, 0.0)),
    *((Span(0, 2, 0, "ours"), Span(2, 3, 5, "theirs")), 1.0, 1.0),
)
NODES = (Node(0, -1, "context", -1, "user", '{"role":"user","content":"?"}', (5, 6)), SAMPLED)


async def recorded(rig: Rig, nodes: tuple[Node, ...] = NODES, **more: object) -> task_pb2.RecordedEpisode:
    blob = await rig.blobs.put(encode(Trajectory("elsewhere", "other", nodes)), MEDIA_TYPE)
    values = {"outcome": task_pb2.OUTCOME_COMPLETED, "answer": "42", "agent_wall_s": 1.5} | more
    return task_pb2.RecordedEpisode(trajectory=blob, **values)  # type: ignore[arg-type]


async def test_it_is_sealed_under_its_own_name_and_foreign_policies_count_as_none(rig: Rig):
    await rig.desk.create_run("r1", spec())
    bus = Bus(rig)
    published = trainer_pb2.PolicyPublished(run_id="r1", step=0, digest="ours")
    await bus.deliver(("trainer.policy", published))
    given = submission(recorded=await recorded(rig))
    assert await rig.desk.submit(given)
    assert not await rig.desk.submit(given)
    submitted = (await rig.published("gateway.episode/ep-1"))[0]
    assert isinstance(submitted, gateway_pb2.EpisodeSubmitted)
    assert submitted.recorded.answer == "42"
    # Nobody says that it starts: what ran it is known from its submission.
    assert (await rig.folds.episode("ep-1")).agent == "recorded"

    await bus.deliver(finished())
    seal = sealed(await rig.published("gateway.episode/ep-1"))
    assert (seal.node_count, seal.turn_count, seal.sampled_tokens, seal.first_policy_step) == (2, 1, 3, 0)
    kept = decode(await rig.blobs.get(seal.trajectory))
    assert (kept.episode_id, kept.run_id) == ("ep-1", "r1")
    assert [(span.policy_step, span.policy_digest) for span in kept.nodes[1].spans] == [(0, "ours"), (-1, "theirs")]
    assert kept.nodes[1].logprobs == pytest.approx(SAMPLED.logprobs)


async def test_one_that_is_already_what_it_is_sealed_as_keeps_its_blob(rig: Rig):
    await rig.desk.create_run("r1", spec())
    # Rounding left the second token a hair above zero, which is no reason to refuse it.
    theirs = replace(SAMPLED, spans=(Span(0, 3, -1, "theirs"),), logprobs=(-0.5, 5e-7, -0.1))
    for name, nodes, same in (
        ("ep-1", (NODES[0], theirs), True),
        ("ep-2", (NODES[0], replace(theirs, infra=True)), False),
        ("ep-3", (NODES[0], replace(theirs, spans=(Span(0, 3, 4, "theirs"),))), False),
    ):
        blob = await rig.blobs.put(encode(Trajectory(name, "r1", nodes)), MEDIA_TYPE)
        given = task_pb2.RecordedEpisode(trajectory=blob, outcome=task_pb2.OUTCOME_COMPLETED, agent_wall_s=1.0)
        await rig.desk.submit(submission(name, recorded=given))
        seal = await rig.desk.recorded_seal(name)
        kept = decode(await rig.blobs.get(seal.trajectory))
        assert (seal.trajectory == blob) == same
        assert kept == decode(encode(Trajectory(name, "r1", (NODES[0], theirs))))


@pytest.mark.parametrize(
    ("nodes", "more", "field"),
    [
        (NODES[:1], {}, "recorded.trajectory"),
        (
            (NODES[0], replace(SAMPLED, logprobs=(-0.5, float("nan"), -0.1))),
            {},
            "recorded.trajectory: node 1: logprobs",
        ),
        ((NODES[0], replace(SAMPLED, logprobs=(-0.5, 0.3, -0.1))), {}, "recorded.trajectory: node 1: logprobs"),
        ((NODES[0], replace(SAMPLED, logprobs=(-0.5, -inf, -0.1))), {}, "recorded.trajectory: node 1: logprobs"),
        ((NODES[0], replace(SAMPLED, logprobs=(-0.5, inf, -0.1))), {}, "recorded.trajectory: node 1: logprobs"),
        ((NODES[0], replace(SAMPLED, logprobs=(2e-6, -0.5, -0.1))), {}, "recorded.trajectory: node 1: logprobs"),
        (
            (NODES[0], replace(SAMPLED, token_ids=(), logprobs=(), spans=())),
            {},
            "recorded.trajectory: node 1: token_ids",
        ),
        ((NODES[0], replace(SAMPLED, temperature=0.0)), {}, "recorded.trajectory: node 1: temperature"),
        (NODES, {"outcome": task_pb2.OUTCOME_INFRA}, "recorded.outcome"),
        (NODES, {"agent_wall_s": -1.0}, "recorded.agent_wall_s"),
        (NODES, {"answer": "x" * 70_000}, "recorded.answer"),
    ],
)
async def test_what_training_could_not_use_is_refused_by_name(rig: Rig, nodes, more, field):
    await rig.desk.create_run("r1", spec())
    with pytest.raises(InvalidInput) as refused:
        await rig.desk.submit(submission(recorded=await recorded(rig, nodes, **more)))
    assert str(refused.value).startswith(f"{field}: ")
    assert await rig.published("gateway.episode/ep-1") == []


async def test_bytes_that_are_no_trajectory_and_ids_that_are_taken(rig: Rig):
    await rig.desk.create_run("r1", spec())
    broken = await recorded(rig)
    broken.trajectory.CopyFrom(await rig.blobs.put(b"no arrow", "text/plain"))
    with pytest.raises(InvalidInput, match="not an Arrow file"):
        await rig.desk.submit(submission(recorded=broken))
    await rig.desk.submit(submission(recorded=await recorded(rig)))
    with pytest.raises(IdTaken):
        await rig.desk.submit(submission(recorded=await recorded(rig, answer="43")))


async def test_a_removed_run_frees_what_was_recorded_too(rig: Rig):
    await rig.desk.create_run("r1", spec())
    given = submission(recorded=await recorded(rig))
    await rig.desk.submit(given)
    await Bus(rig).deliver(finished())
    await rig.desk.stop_run("r1")
    count, size = await rig.desk.remove_run("r1", ["ep-1"], rig.blobs)
    assert count == 2 and size > 0
