"""RunService and EpisodeService over real gRPC, and the router's client."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import grpc
import pytest
from clocks import ManualClock
from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import episode_service_pb2_grpc as episode_grpc
from forgerl.gateway.v1 import run_service_pb2 as run_api
from forgerl.gateway.v1 import run_service_pb2_grpc as run_grpc
from forgerl.router.v1 import router_service_pb2 as router_api
from forgerl.router.v1 import router_service_pb2_grpc as router_grpc
from gateway_engine import ScriptedEngine, says
from gateway_rig import Rig, spec, submission

from services.gateway.adapters.router import RouterRoutes
from services.gateway.entrypoints.rpc import Doors, EpisodeServicer, RunServicer
from services.gateway.ports import EngineUnavailable, RouteOrder, Served, Ticket
from services.kernel import rpc

SECURITY = rpc.RpcSecurity("token")
ASK = [{"role": "user", "content": "hi"}]


def doors_of(rig: Rig) -> Doors:
    return Doors(rig.desk, rig.folds, rig.views, rig.store, rig.blobs, rig.credentials, f"{rig.url}/v1", "policy")


@pytest.fixture
async def channel(rig: Rig) -> AsyncIterator[grpc.aio.Channel]:
    doors = doors_of(rig)
    server = await rpc.serve(
        [
            (run_grpc.add_RunServiceServicer_to_server, RunServicer(doors)),
            (episode_grpc.add_EpisodeServiceServicer_to_server, EpisodeServicer(doors)),
        ],
        "127.0.0.1:0",
        SECURITY,
    )
    following = asyncio.create_task(rig.views.run())
    async with rpc.connect(f"127.0.0.1:{server.port}", SECURITY) as opened:
        yield opened
    following.cancel()
    await server.stop()


async def code_of(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), str(refused.value.details())


async def test_a_run_and_its_episode_from_creation_to_transcript(
    rig: Rig, channel: grpc.aio.Channel, engine: ScriptedEngine
):
    runs, episodes = run_grpc.RunServiceStub(channel), episode_grpc.EpisodeServiceStub(channel)
    created = await runs.CreateRun(run_api.CreateRunRequest(run_id="r1", spec=spec()))
    assert (created.state, created.spec.sampling.max_tokens) == (run_api.RUN_STATE_RUNNING, 200)

    answers = [
        (answer.episode_id, answer.created)
        async for answer in episodes.SubmitEpisodes(iter([submission("a"), submission("b"), submission("a")]))
    ]
    assert answers == [("a", True), ("b", True), ("a", False)]
    listed = await episodes.ListEpisodes(episode_api.ListEpisodesRequest(run_id="r1", limit=1, after="a"))
    assert [view.submission.episode_id for view in listed.episodes] == ["b"]

    view = await episodes.GetEpisode(episode_api.GetEpisodeRequest(episode_id="a"))
    assert (view.agent, view.max_turns, view.agent_timeout_s) == ("tool_loop", 8, 60.0)
    key = await episodes.IssueCredential(episode_api.IssueCredentialRequest(episode_id="a"))
    assert key.base_url == f"{rig.url}/v1"
    engine.scripts.append(says("hello"))
    await rig.openai(key.api_key).chat.completions.create(model=key.model, messages=ASK)  # type: ignore[arg-type]
    transcript = await episodes.GetTranscript(episode_api.GetTranscriptRequest(episode_id="a"))
    assert [node.sampled for node in transcript.nodes] == [False, True]
    assert transcript.nodes[1].mean_logprob == pytest.approx(-0.5)
    assert (transcript.nodes[1].spans[0].end, transcript.nodes[1].token_count) == (6, 6)
    view = await episodes.GetEpisode(episode_api.GetEpisodeRequest(episode_id="a"))
    assert (view.turn_count, view.sampled_tokens) == (1, 6)
    run = await runs.GetRun(run_api.GetRunRequest(run_id="r1"))
    assert (run.episodes_submitted, run.episodes_sealed) == (2, 0)


async def test_many_episodes_are_answered_in_order_and_those_that_were_never_submitted_are_named(
    rig: Rig, channel: grpc.aio.Channel
):
    await rig.desk.create_run("r1", spec())
    for name in ("a", "b", "c"):
        await rig.desk.submit(submission(name))
    await rig.desk.cancel("b", "late")
    episodes = episode_grpc.EpisodeServiceStub(channel)
    asked = ["c", "nobody", "a", "b", "a", "none"]
    answer = await episodes.GetEpisodes(episode_api.GetEpisodesRequest(episode_ids=asked))
    assert [view.submission.episode_id for view in answer.episodes] == ["c", "a", "b"]
    assert list(answer.missing) == ["nobody", "none"]
    one_by_one = [await episodes.GetEpisode(episode_api.GetEpisodeRequest(episode_id=name)) for name in "cab"]
    assert list(answer.episodes) == one_by_one
    assert [view.state for view in one_by_one] == [1, 1, episode_api.EPISODE_STATE_CANCELLED]
    assert {view.agent for view in answer.episodes} == {"tool_loop"}
    empty = await episodes.GetEpisodes(episode_api.GetEpisodesRequest())
    assert (list(empty.episodes), list(empty.missing)) == ([], [])


async def test_more_episodes_than_a_call_may_ask_for_are_refused_by_name(channel: grpc.aio.Channel):
    episodes = episode_grpc.EpisodeServiceStub(channel)
    names = [f"ep-{number}" for number in range(201)]
    answer = await episodes.GetEpisodes(episode_api.GetEpisodesRequest(episode_ids=names[:200]))
    assert list(answer.missing) == names[:200]
    code, details = await code_of(episodes.GetEpisodes(episode_api.GetEpisodesRequest(episode_ids=names)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "episode_ids: given '201 of them'; allowed 200 at most"


async def test_what_does_not_fit_into_an_answer_is_left_to_the_next(
    rig: Rig, channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("services.gateway.entrypoints.rpc._ANSWER_BYTES", 40_000)
    await rig.desk.create_run("r1", spec())
    task = task_pb2.Task(environment="tool", task_id="t", split=task_pb2.SPLIT_TRAIN, payload=bytes(16 * 1024))
    for name in ("a", "b", "c", "d"):
        await rig.desk.submit(submission(name, task=task))
    episodes = episode_grpc.EpisodeServiceStub(channel)
    answer = await episodes.GetEpisodes(episode_api.GetEpisodesRequest(episode_ids=["a", "b", "none", "c", "d"]))
    # Two are 33 kB, three would be more than the 40 that an answer holds.
    assert [view.submission.episode_id for view in answer.episodes] == ["a", "b"]
    assert list(answer.missing) == ["none"]
    for after, found in (("", ["a", "b"]), ("b", ["c", "d"]), ("d", [])):
        page = await episodes.ListEpisodes(episode_api.ListEpisodesRequest(run_id="r1", limit=999, after=after))
        assert [view.submission.episode_id for view in page.episodes] == found


async def test_a_watcher_that_is_slow_is_told_the_end_too(rig: Rig):
    await rig.episode("a")
    watched = EpisodeServicer(doors_of(rig)).WatchEpisode(episode_api.WatchEpisodeRequest(episode_id="a"), None)
    assert (await anext(watched)).state == episode_api.EPISODE_STATE_SUBMITTED
    # The end comes while the first answer is still on its way.
    await rig.desk.cancel("a", "no")
    await rig.views.catch_up()
    assert [view.state async for view in watched] == [episode_api.EPISODE_STATE_CANCELLED]


async def test_watchers_see_changes_until_the_end(rig: Rig, channel: grpc.aio.Channel):
    runs, episodes = run_grpc.RunServiceStub(channel), episode_grpc.EpisodeServiceStub(channel)
    await rig.episode("a")
    watched = episodes.WatchEpisode(episode_api.WatchEpisodeRequest(episode_id="a"))
    watched_run = runs.WatchRun(run_api.WatchRunRequest(run_id="r1"))
    assert (await watched.read()).state == episode_api.EPISODE_STATE_SUBMITTED
    assert (await watched_run.read()).state == run_api.RUN_STATE_RUNNING
    cancelled = await episodes.CancelEpisode(episode_api.CancelEpisodeRequest(episode_id="a", reason="no"))
    assert (cancelled.state, cancelled.outcome) == (episode_api.EPISODE_STATE_CANCELLED, task_pb2.OUTCOME_CANCELLED)
    assert [view.state async for view in watched][-1] == episode_api.EPISODE_STATE_CANCELLED
    await runs.StopRun(run_api.StopRunRequest(run_id="r1"))
    last = [view async for view in watched_run][-1]
    assert (last.state, last.end_reason, last.episodes_sealed) == (run_api.RUN_STATE_ENDED, "stopped", 1)
    status, _ = await code_of(episodes.IssueCredential(episode_api.IssueCredentialRequest(episode_id="a")))
    assert status is grpc.StatusCode.FAILED_PRECONDITION


async def test_refusals_have_their_status_and_one_line_a_problem(rig: Rig, channel: grpc.aio.Channel):
    runs, episodes = run_grpc.RunServiceStub(channel), episode_grpc.EpisodeServiceStub(channel)
    bad = spec()
    bad.domains[0].environment = "nowhere"
    bad.scheduling.queue_items = 0
    status, words = await code_of(runs.CreateRun(run_api.CreateRunRequest(run_id="R!", spec=bad)))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "run_id: given 'R!'" in words and "domains[0].environment: given 'nowhere'" in words
    assert (await code_of(runs.GetRun(run_api.GetRunRequest(run_id="x"))))[0] is grpc.StatusCode.NOT_FOUND
    listed = episodes.ListEpisodes(episode_api.ListEpisodesRequest(run_id="x"))
    assert (await code_of(listed))[0] is grpc.StatusCode.NOT_FOUND
    await rig.episode("a")
    again = submission("a", group_id="other")
    assert (await code_of(episodes.SubmitEpisode(again)))[0] is grpc.StatusCode.ALREADY_EXISTS
    second = run_api.CreateRunRequest(run_id="r2", spec=spec())
    status, words = await code_of(runs.CreateRun(second))
    assert status is grpc.StatusCode.FAILED_PRECONDITION and "r1" in words
    removal = run_api.RemoveRunRequest(run_id="r1")
    assert (await code_of(runs.RemoveRun(removal)))[0] is grpc.StatusCode.FAILED_PRECONDITION
    async with rpc.connect("127.0.0.1:1", rpc.RpcSecurity("wrong")) as nowhere:
        lost = run_grpc.RunServiceStub(nowhere).ListRuns(run_api.ListRunsRequest(), timeout=1)
        assert (await code_of(lost))[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Router(router_grpc.RouterServiceServicer):
    """Answers one lease, then none."""

    def __init__(self) -> None:
        self.routed: list[router_api.RouteRequest] = []
        self.completed: list[router_api.CompleteRequest] = []
        self.workers: list[router_api.WorkerView] = []

    async def Route(self, request, context):
        self.routed.append(request)
        if len(self.routed) > 1:
            await asyncio.Event().wait()
        return router_api.Lease(lease_id="l", worker_id="w", engine_url="http://e", policy_step=3, policy_digest="d3")

    async def Complete(self, request, context):
        self.completed.append(request)
        return router_api.CompleteResponse()

    async def ListWorkers(self, request, context):
        return router_api.ListWorkersResponse(workers=self.workers)


async def test_router_client_speaks_the_routers_words():
    router = Router()
    server = await rpc.serve([(router_grpc.add_RouterServiceServicer_to_server, router)], "127.0.0.1:0", SECURITY)
    async with rpc.connect(f"127.0.0.1:{server.port}", SECURITY) as opened:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        routes = RouterRoutes(opened, clock)
        order = RouteOrder("c", "e", "r", "g", (1, 2, 70000), 9, None, ("w9",))
        assert await routes.route(order, 5.0) == Ticket("l", "w", "http://e", 3, "d3")
        sent = router.routed[0]
        assert sent.token_ids == b"\x01\0\0\0\x02\0\0\0\x70\x11\x01\0" and not sent.HasField("pinned_step")
        assert list(sent.avoid_worker_ids) == ["w9"]
        with pytest.raises(EngineUnavailable):
            await routes.route(RouteOrder("c", "e", "r", "g", (1,), 9, 0), 0.2)
        assert router.routed[1].HasField("pinned_step")
        await routes.complete(Ticket("l", "w", "u", 3, "d"), Served("done", 1, 2, 3, 0.5, 1.5))
        assert (router.completed[0].lease_id, router.completed[0].new_tokens) == ("l", 3)
        with pytest.raises(EngineUnavailable, match="no engine is known"):
            await routes.engine_urls(5.0)
        for name, state in (("a", "swapping"), ("b", "ready"), ("c", "ready")):
            router.workers.append(router_api.WorkerView(worker_id=name, engine_url=f"http://{name}", state=state))
        in_turn = [await routes.engine_urls(5.0) for _ in range(2)]
        assert in_turn == [["http://c", "http://b", "http://a"], ["http://b", "http://c", "http://a"]]
        await server.stop()
        assert len(await routes.engine_urls(0.2)) == 3
        clock.advance(2.0)
        with pytest.raises(EngineUnavailable):
            await routes.engine_urls(0.2)
