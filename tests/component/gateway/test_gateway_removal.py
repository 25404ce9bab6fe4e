"""What `forgerl rm` frees: everything of the run, and nothing that another run's episode refers to."""

from pathlib import Path

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2
from gateway_engine import ScriptedEngine, says
from gateway_rig import Rig, sealed, spec, submission
from test_gateway_episodes import Bus, finished, talk

from services.contract.trajectory import decode


async def run_of(rig: Rig, engine: ScriptedEngine) -> BlobRef:
    """The run r1, ended, with an episode that was run here; its trajectory."""
    await talk(rig, engine, await rig.episode(), "one")
    await Bus(rig).deliver(finished())
    await rig.desk.stop_run("r1")
    return sealed(await rig.published("gateway.episode/ep-1")).trajectory


async def taken_in(rig: Rig, trajectory: BlobRef, run_id: str = "r2", episode_id: str = "ep-2") -> BlobRef:
    """Another run, ended, that took the trajectory in; what it is to be sealed as."""
    await rig.desk.create_run(run_id, spec())
    recorded = task_pb2.RecordedEpisode(trajectory=trajectory, outcome=task_pb2.OUTCOME_COMPLETED, answer="42")
    await rig.desk.submit(submission(episode_id, run_id, recorded=recorded))
    await rig.desk.stop_run(run_id)
    return (await rig.desk.recorded_seal(episode_id)).trajectory


def stored(tmp_path: Path) -> int:
    return sum(path.is_file() for path in (tmp_path / "blobs").rglob("*"))


async def remove(rig: Rig, run_id: str, *episode_ids: str) -> int:
    return (await rig.desk.remove_run(run_id, episode_ids, rig.blobs))[0]


async def test_a_run_that_took_anothers_trajectory_in_leaves_it_when_it_goes(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    theirs = await run_of(rig, engine)
    own = await taken_in(rig, theirs)
    assert own != theirs
    # Its own is freed though it was never sealed.
    assert await remove(rig, "r2", "ep-2") == 1
    assert not await rig.blobs.exists(own)
    assert decode(await rig.blobs.get(theirs)).episode_id == "ep-1"
    # A run that is removed keeps nothing: now nobody refers to it any more.
    assert await remove(rig, "r1", "ep-1") == 1
    assert stored(tmp_path) == 0


async def test_a_trajectory_that_was_taken_in_elsewhere_goes_with_the_last_run(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    theirs = await run_of(rig, engine)
    own = await taken_in(rig, theirs)
    assert await remove(rig, "r1", "ep-1") == 0
    assert await rig.blobs.exists(theirs) and await rig.blobs.exists(own)
    assert await remove(rig, "r2", "ep-2") == 2
    assert stored(tmp_path) == 0


async def test_a_run_that_goes_on_keeps_what_it_was_given(rig: Rig, engine: ScriptedEngine):
    theirs = await run_of(rig, engine)
    first = await taken_in(rig, theirs)
    second = await taken_in(rig, theirs, "r3", "ep-3")
    assert await remove(rig, "r1", "ep-1") == 0
    assert await remove(rig, "r2", "ep-2") == 1
    assert not await rig.blobs.exists(first)
    assert await rig.blobs.exists(theirs) and await rig.blobs.exists(second)


async def large_turn(rig: Rig, engine: ScriptedEngine, episode_id: str) -> BlobRef:
    """A turn of 20,000 ids, 80 kB, in an episode of r1."""
    key = await rig.episode(episode_id)
    engine.room_tokens = 100_000
    engine.scripts.append(says("one"))
    asked = [{"role": "user", "content": "x" * 20_000}]
    await rig.openai(key).chat.completions.create(model="m", messages=asked)  # type: ignore[arg-type]
    (turn,) = await rig.published(f"gateway.turns/{episode_id}")
    assert isinstance(turn, record_pb2.TurnRecorded) and turn.tokens_blob.size_bytes > 80_000
    return turn.tokens_blob


async def test_turns_too_large_for_an_event_go_too_also_of_an_episode_that_was_never_sealed(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path
):
    tokens = await large_turn(rig, engine, "ep-1")
    await rig.desk.stop_run("r1")
    size_bytes = next((tmp_path / "blobs").rglob(f"{tokens.sha256}*")).stat().st_size
    assert await rig.desk.remove_run("r1", ["ep-1"], rig.blobs) == (1, size_bytes)
    assert stored(tmp_path) == 0


@pytest.mark.parametrize("removed_before", [False, True])
async def test_a_large_turn_that_another_run_shares_stays_until_that_is_removed(
    rig: Rig, engine: ScriptedEngine, removed_before: bool
):
    tokens = await large_turn(rig, engine, "ep-1")
    await rig.desk.stop_run("r1")
    await rig.desk.create_run("r2", spec())
    await rig.desk.submit(submission("ep-2", "r2"))
    write = (await rig.store.read("gateway.turns/ep-1"))[0].message
    batch = rig.folds.batch()
    await batch.add("gateway.turns/ep-2", write)
    await rig.store.append(batch.writes())
    await rig.desk.stop_run("r2")
    if removed_before:
        assert await remove(rig, "r2", "ep-2") == 0
    assert await remove(rig, "r1", "ep-1") == int(removed_before)
    assert await rig.blobs.exists(tokens) != removed_before


async def test_a_removal_that_was_cut_short_is_completed_by_a_repeat(
    rig: Rig, engine: ScriptedEngine, tmp_path: Path, monkeypatch
):
    await large_turn(rig, engine, "ep-1")
    await Bus(rig).deliver(finished())
    await rig.desk.stop_run("r1")
    assert stored(tmp_path) == 2
    delete, calls = rig.blobs.delete, 0

    async def fail_after_one(uri: str) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the disk is away")
        return await delete(uri)

    with monkeypatch.context() as broken:
        broken.setattr(rig.blobs, "delete", fail_after_one)
        with pytest.raises(OSError, match="away"):
            await remove(rig, "r1", "ep-1")
    assert stored(tmp_path) == 1
    assert await remove(rig, "r1", "ep-1") == 1
    assert await remove(rig, "r1", "ep-1") == 0
    # Each time the others are told, who may have more to free by then.
    told = [one for one in await rig.published("gateway.run/r1") if isinstance(one, gateway_pb2.RunRemoved)]
    assert len(told) == 3
