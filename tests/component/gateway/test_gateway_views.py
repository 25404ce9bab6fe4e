"""The index over runs and episodes: what a start reads, and what is forgotten with a removed run."""

from collections.abc import Sequence

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import record_pb2
from forgerl.gateway.v1 import run_service_pb2 as run_api
from gateway_engine import ScriptedEngine
from gateway_rig import Rig, sealed, spec, submission
from test_gateway_episodes import Bus, finished, talk
from test_gateway_removal import large_turn, stored
from test_gateway_rpc import doors_of

from services.gateway.entrypoints.rpc import EpisodeServicer, RunServicer
from services.gateway.views import EpisodeLine, RunLine, Views

EVALUATION = task_pb2.EPISODE_KIND_EVALUATION


async def played(rig: Rig, engine: ScriptedEngine) -> None:
    """r1: one sealed after two turns, one with a turn, one of an evaluation; the turn is the last that happened."""
    key = await rig.episode("ep-1")
    await talk(rig, engine, key, "one")
    await talk(rig, engine, key, "two")
    await Bus(rig).deliver(finished("ep-1"))
    await rig.desk.submit(submission("ep-3", kind=EVALUATION, pinned_step=0))
    await talk(rig, engine, await rig.episode("ep-2"), "three")
    await rig.views.catch_up()


async def test_a_start_reads_no_turn_of_a_sealed_episode_and_each_other_once(
    rig: Rig, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await played(rig, engine)
    (turn,) = await rig.published("gateway.turns/ep-2")
    assert isinstance(turn, record_pb2.TurnRecorded)
    came: list[object] = []
    notifications, read_many = rig.store.notifications, rig.store.read_many

    async def noted(after: int, limit: int, types: Sequence[str] = ()):
        page = await notifications(after, limit, types)
        came.extend(event.message for _, event in page)
        return page

    async def noted_streams(streams: Sequence[str]):
        found = await read_many(streams)
        came.extend(event.message for events in found.values() for event in events)
        return found

    monkeypatch.setattr(rig.store, "notifications", noted)
    monkeypatch.setattr(rig.store, "read_many", noted_streams)
    anew = Views(rig.store, rig.sessions.drop)
    await anew.catch_up()
    assert (anew.runs, anew.run_ids, anew.unsealed) == (rig.views.runs, rig.views.run_ids, rig.views.unsealed)
    assert anew.unsealed == {"ep-2": EpisodeLine(1, 1, turn.spans[-1].end), "ep-3": EpisodeLine()}
    turns = [message for message in came if isinstance(message, record_pb2.TurnRecorded)]
    # By its stream, and once more in the tail after the last event of the index.
    assert {one.call_id for one in turns} == {turn.call_id} and len(turns) == 2


async def test_an_episode_shows_its_turns_before_its_seal_and_after(rig: Rig, engine: ScriptedEngine) -> None:
    await played(rig, engine)
    episodes = EpisodeServicer(doors_of(rig))
    asked = episode_api.GetEpisodesRequest(episode_ids=["ep-1", "ep-2", "ep-3"])
    views = (await episodes.GetEpisodes(asked, None)).episodes
    assert [view.turn_count for view in views] == [2, 1, 0]
    assert all((view.sampled_tokens > 0) == (view.turn_count > 0) for view in views)


async def test_a_removed_runs_lines_go_and_its_counts_stand(rig: Rig, engine: ScriptedEngine) -> None:
    await played(rig, engine)
    await rig.desk.stop_run("r1")
    await rig.desk.create_run("r2", spec())
    await rig.desk.submit(submission("kept", "r2"))
    await RunServicer(doors_of(rig)).RemoveRun(run_api.RemoveRunRequest(run_id="r1"), None)
    await rig.views.catch_up()
    assert rig.views.unsealed == {"kept": EpisodeLine()}
    gone = RunLine({}, True, submitted=2, sealed=1, evaluations_submitted=1)
    assert rig.views.runs == {"r1": gone, "r2": RunLine({"kept": 1}, submitted=1)}
    # One that was in flight ends.
    await Bus(rig).deliver(finished("ep-2"))
    assert sealed(await rig.published("gateway.episode/ep-2")).turn_count == 1
    assert rig.views.runs["r1"] == gone
    anew = Views(rig.store, rig.sessions.drop)
    await anew.catch_up()
    assert (anew.runs, anew.unsealed) == (rig.views.runs, rig.views.unsealed)


async def test_a_removed_runs_episodes_are_listed_out_of_the_log(
    rig: Rig, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.views._PAGE", 2)
    await played(rig, engine)
    episodes, runs = EpisodeServicer(doors_of(rig)), RunServicer(doors_of(rig))
    every, evaluated = (episode_api.ListEpisodesRequest(run_id="r1", kind=kind) for kind in (0, EVALUATION))
    before = await episodes.ListEpisodes(every, None)
    await rig.desk.stop_run("r1")
    await rig.desk.create_run("r2", spec())
    await rig.desk.submit(submission("kept", "r2"))
    await runs.RemoveRun(run_api.RemoveRunRequest(run_id="r1"), None)
    after = await episodes.ListEpisodes(every, None)
    names = [[view.submission.episode_id for view in found.episodes] for found in (before, after)]
    assert names == [["ep-1", "ep-3", "ep-2"]] * 2
    (view,) = (await episodes.ListEpisodes(evaluated, None)).episodes
    assert view.submission.episode_id == "ep-3"


async def test_a_removal_asked_for_again_frees_what_the_first_left(
    rig: Rig, engine: ScriptedEngine, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large_turn(rig, engine, "ep-1")
    await rig.desk.stop_run("r1")
    runs, asked = RunServicer(doors_of(rig)), run_api.RemoveRunRequest(run_id="r1")

    async def away(_: str) -> tuple[int, int]:
        raise OSError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(rig.blobs, "delete", away)
        with pytest.raises(OSError, match="away"):
            await runs.RemoveRun(asked, None)
    await rig.views.catch_up()
    assert rig.views.runs["r1"].removed and stored(tmp_path) == 1
    assert (await runs.RemoveRun(asked, None)).blobs == 1
    assert stored(tmp_path) == 0
