"""`forgerl data prune` on real stores and blobs, the scheduler's RPC and those who free: what goes, stays, is said."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1 import gateway_pb2, rollout_pb2, scheduler_pb2
from forgerl.gateway.v1 import record_pb2
from forgerl.gateway.v1.run_service_pb2 import RunView
from forgerl.rollout.v1 import journal_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.scheduler.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message
from scheduler_bench import Bench, group, submitted
from typer.testing import CliRunner

from services.cli.app import build_app
from services.client import Client
from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.gateway.freeing import Freeing
from services.kernel.errors import NotFound
from services.kernel.event_store import EventStore, Write
from services.kernel.inbox import Inbox
from services.kernel.rpc import RpcSecurity, serve
from services.rollout.adapters.freeing import RunTexts
from services.scheduler.domain.facts import Input, TrajectoriesPruned
from services.scheduler.entrypoints.replay import Records, prunable, verify
from services.scheduler.entrypoints.rpc import SchedulerRpc

TOKEN = "0" * 32
Cli = Callable[..., Awaitable[list[str]]]
ALL = {"v", *(f"{name}.{member}" for name in "abcde" for member in (0, 1))}
OLD_IN_ORDER = ("a.0", "a.1", "b.0", "b.1")
OLD = {"v", *OLD_IN_ORDER}


def trajectory(episode_id: str) -> bytes:
    """A question and a turn of two tokens."""
    said = ("user", '{"role": "user", "content": "2+2?"}'), ("assistant", '{"role": "assistant", "content": "4"}')
    nodes = (
        Node(0, -1, "context", -1, *said[0], (5, 6)),
        Node(1, 0, "sampled", 0, *said[1], (7, 8), (-0.5, -1.5), (Span(0, 2, 0, "d"),), 1.0),
    )
    return encode(Trajectory(episode_id, "r", nodes))


class Pool(Bench):
    """Step 1 trained group a, step 2 dropped b for want of spread and trained c, step 3 trained d; e is handed over, f
    runs, and an evaluation of policy 0 is over. a.0 and f.0 share the blob of a large turn; a.1 has one of its own.
    b.0's answer is a blob of its own, and what a tool told b.1 is one that f.1 was told as well.
    """

    folder: Path

    async def ending(self, episode_id: str, performance: float) -> list[Message]:
        scored, sealed, finished = await super().ending(episode_id, performance)
        sealed.trajectory.CopyFrom(await self.blobs.put(trajectory(episode_id), MEDIA_TYPE))
        return [scored, sealed, finished]

    async def grow(self, **scheduling: int) -> None:
        await self.open(lookahead_steps=8, in_flight_items=4, **scheduling)
        await self.feed(submitted("v", pinned_step=0))
        await self.finish("v", 1.0)
        for number, name in enumerate("abcd"):
            await self.feed(*group(name))
            await self.finish(f"{name}.0", 1.0)
            await self.finish(f"{name}.1", 1.0 if name == "b" else 0.0)
            if name != "b":
                step = number + (number == 0)
                rows = [report_pb2.EpisodeReport(episode_id=f"{name}.{m}", trained=True) for m in (0, 1)]
                await self.train(step, *rows)
        await self.feed(*group("e"), *group("f"))
        await self.finish("e.0", 1.0)
        await self.finish("e.1", 0.0)

    async def others(self, folder: Path) -> dict[str, BlobRef]:
        """What the stores of gateway and rollout hold beside."""
        self.folder, blobs = folder, {}
        for name in ("two", "own", "answer", "told"):
            blobs[name] = await self.blobs.put(name.encode() * 40_000, "application/x-protobuf")
        writes = [Write("gateway.episode/f.0", 0, (self.submission("f.0"),))]
        for name in sorted(ALL):
            own = (
                self.submission(name),
                gateway_pb2.TrajectorySealed(episode_id=name, run_id="r", trajectory=await self.sealed(name)),
            )
            writes.append(Write(f"gateway.episode/{name}", 0, own))
        for name, turn in (("a.0", "two"), ("a.1", "own"), ("f.0", "two")):
            writes.append(Write(f"gateway.turns/{name}", 0, (record_pb2.TurnRecorded(tokens_blob=blobs[turn]),)))
        await self.gateway.append(writes)
        finished = rollout_pb2.EpisodeFinished(episode_id="b.0", run_id="r", answer_blob=blobs["answer"])
        told = journal_pb2.ToolsAnswered(messages=blobs["told"])
        await self.rollout.append(
            [Write("rollout.episode/b.0", 0, (finished,)), *(Write(f"rollout.turns/{e}.1", 0, (told,)) for e in "bf")]
        )
        trainer = EventStore.open(f"sqlite:///{folder}/trainer.db", self.catalogue, self.clock)
        await trainer.close()
        return blobs

    def submission(self, name: str) -> gateway_pb2.EpisodeSubmitted:
        return gateway_pb2.EpisodeSubmitted(episode_id=name, run_id="r", kind=task_pb2.EPISODE_KIND_TRAIN)

    def open_others(self, folder: Path) -> None:
        """Gateway and rollout, as far as they free."""
        self.gateway, self.rollout = (
            EventStore.open(f"sqlite:///{folder}/{name}.db", self.catalogue, self.clock)
            for name in ("gateway", "rollout")
        )
        self.freeing, self.texts = Freeing(self.gateway, self.blobs), RunTexts(self.rollout, self.blobs)

    async def hand_over(self) -> None:
        """What the scheduler has said of pruned episodes, from the first word on, as after a killed relay."""
        told = await self.store.read("scheduler.retention/r")
        await Inbox(self.gateway, "gateway").handle(told, self.freeing.handle)
        await Inbox(self.rollout, "rollout").handle(told, self.texts.handle)

    async def serve_others(self) -> None:
        """Both hear of everything that is recorded, until cancelled."""
        appended = self.store.subscribe()
        while True:
            await appended.wait()
            appended.clear()
            await self.hand_over()

    async def there(self) -> set[str]:
        """Episodes whose trajectory is in the blob store."""
        found: set[str] = set()
        for name in ALL:
            if await self.blobs.exists(await self.sealed(name)):
                found.add(name)
        return found

    def size_bytes(self) -> int:
        """Of all that lies in the blob store."""
        return sum(path.stat().st_size for path in (self.folder / "blobs").rglob("*") if path.is_file())

    async def freed_bytes(self) -> list[int]:
        """As each service has recorded it."""
        told = [*await self.gateway.read("gateway.freed/r"), *await self.rollout.read("rollout.run/r")]
        return [getattr(event.message, "freed_bytes", 0) for event in told]

    async def sealed(self, episode_id: str) -> BlobRef:
        for event in await self.store.read("scheduler.queue/r"):
            if event.message.sealed.episode_id == episode_id:
                return BlobRef.FromString(event.message.sealed.trajectory)
        raise AssertionError(episode_id)


@pytest.fixture
async def pool(tmp_path: Path) -> Pool:
    made = Pool(tmp_path)
    await made.grow()
    made.open_others(tmp_path)
    return made


@pytest.fixture
async def others(pool: Pool, tmp_path: Path) -> dict[str, BlobRef]:
    return await pool.others(tmp_path)


@pytest.fixture
async def cli(pool: Pool, others: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cli]:
    """The command, beside a scheduler that answers, and a gateway and a rollout that free."""
    servicer = (add_SchedulerServiceServicer_to_server, SchedulerRpc(pool.scheduler))
    server = await serve([servicer], "127.0.0.1:0", RpcSecurity(TOKEN))
    for name, value in {
        "FORGERL_STORE_URL": f"sqlite:///{tmp_path}/{{service}}.db",
        "FORGERL_BLOB_URL": f"file://{tmp_path}/blobs",
        "FORGERL_SCHEDULER_ADDRESS": f"127.0.0.1:{server.port}",
        "FORGERL_GATEWAY_ADDRESS": "127.0.0.1:9",
        "FORGERL_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(name, value)

    async def run(*arguments: str) -> list[str]:
        done = await asyncio.to_thread(CliRunner().invoke, build_app(), ["data", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [line for line in done.output.splitlines() if line]

    serving = [asyncio.create_task(server.run()), asyncio.create_task(pool.serve_others())]
    yield run
    for task in serving:
        task.cancel()
    await asyncio.wait(serving)


async def test_what_closed_long_ago_is_freed_and_nothing_else(pool: Pool, others: dict[str, BlobRef], cli: Cli) -> None:
    """Three steps are done; keeping two leaves all that closed after step 1."""
    before = await pool.store.version("scheduler.queue/r")
    assert await pool.there() == ALL
    said = await cli("prune", "r", "--keep-steps", "2", "--dry-run")
    assert said == [
        "forgerl: blobs that episodes which are kept name as well will stay; who names what is counted when they are"
        " freed",
        "forgerl: at most 9 blobs, 0.0 MB would be freed: 5 episodes of r closed by step 1 of 3",
    ]
    assert await pool.there() == ALL
    assert await pool.store.version("scheduler.queue/r") == before

    size_bytes = pool.size_bytes()
    said = await cli("prune", "r", "--keep-steps", "2")
    assert said[-2:] == [
        "forgerl: 2 blobs stay, since episodes that are kept refer to them",
        "forgerl: 7 blobs, 0.0 MB are freed: 5 episodes of r closed by step 1 of 3",
    ]
    assert await pool.there() == ALL - OLD
    assert {name for name, blob in others.items() if await pool.blobs.exists(blob)} == {"two", "told"}, "f goes on"
    assert await pool.store.version("scheduler.queue/r") == before + 1, "one entry says it all"
    assert pool.size_bytes() == size_bytes - sum(await pool.freed_bytes())
    assert (await cli("prune", "r", "--keep-steps", "2"))[-1].startswith(
        "forgerl: 0 blobs, 0.0 MB are freed: 0 episodes"
    )
    assert await pool.store.version("scheduler.queue/r") == before + 1


async def test_the_record_goes_on_telling_everything(pool: Pool, cli: Cli) -> None:
    rpc = SchedulerRpc(pool.scheduler)
    books = await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    told = await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="a.0"), None)
    await cli("prune", "r", "--keep-steps", "2")
    after = await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    assert (books.pruned, after.pruned) == (0, 5)
    after.pruned = 0
    assert after == books
    why = await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="a.0"), None)
    assert list(why.lines)[:-1] == list(told.lines)
    version = await pool.store.version("scheduler.queue/r")
    assert (why.verdict, why.lines[-1].fact) == ("trained", "trajectory pruned: closed 2 steps ago or longer")
    assert why.lines[-1].event_id == f"scheduler.queue/r@{version}"
    replayed = await verify(Records(pool.store), "r")
    assert (replayed["agrees"], replayed["balanced"], replayed["pruned"]) == (True, True, 5)

    rows = [json.loads(line) for line in await cli("query", "select episode_id, pruned_at from episodes", "--json")]
    assert {row["episode_id"] for row in rows if row["pruned_at"]} == OLD
    note, *lines = await cli("query", "select distinct episode_id from turns", "--json")
    assert {json.loads(line)["episode_id"] for line in lines} == ALL - OLD
    assert (
        note == "forgerl: 5 trajectories were pruned, the last at 2026-03-01 12:00:00+00:00; turns and tokens lack them"
    )


async def test_it_can_be_done_after_every_step(pool: Pool, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 4 is done while the command watches: then c and d are old as well, with a bound of one."""
    loop = asyncio.get_running_loop()

    def watched(client: Client, run_id: str) -> Iterator[RunView]:
        yield RunView(run_id=run_id, steps=3)
        asyncio.run_coroutine_threadsafe(pool.train(4), loop).result()
        yield RunView(run_id=run_id, steps=4)

    monkeypatch.setattr(Client, "watch_run", watched)
    said = await cli("prune", "r", "--keep-steps", "1", "--follow")
    closed = [line.partition("closed by step ")[2] for line in said if "are freed" in line]
    assert closed == ["2 of 3", "3 of 4"]
    assert await pool.there() == {"e.0", "e.1"}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
async def test_an_export_says_what_it_lacks(pool: Pool, cli: Cli, tmp_path: Path, kind: str) -> None:
    await cli("prune", "r", "--keep-steps", "2")
    said = await cli("export", "r", str(tmp_path / "out"), "--format", kind)
    assert said[-1].endswith("5 trajectories were pruned, the last at 2026-03-01 12:00:00+00:00; the export lacks them")


async def test_a_freeing_that_is_killed_is_ended_when_the_event_comes_again(
    pool: Pool, others: dict[str, BlobRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded; then each service is killed after its first blob, and another process hears of it."""
    await pool.scheduler.prune("r", 2)
    assert await pool.there() == ALL
    delete, calls = pool.blobs.delete, 0

    async def one_only(uri: str) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("killed")
        return await delete(uri)

    with monkeypatch.context() as broken:
        broken.setattr(pool.blobs, "delete", one_only)
        with pytest.raises(OSError, match="killed"):
            await pool.hand_over()
    assert calls > 1
    assert await pool.freed_bytes() == []
    pool.open_others(pool.folder)
    for _ in range(2):
        await pool.hand_over()
        assert await pool.there() == ALL - OLD
        assert {name for name, blob in others.items() if await pool.blobs.exists(blob)} == {"two", "told"}
        assert len(await pool.freed_bytes()) == 2, "one record each, however often it comes"


async def test_a_recorded_submission_of_the_same_blob_keeps_it(pool: Pool, cli: Cli) -> None:
    """a.0's trajectory was submitted anew as recorded, to another run that has not sealed it yet."""
    recorded = task_pb2.RecordedEpisode(trajectory=await pool.sealed("a.0"))
    again = gateway_pb2.EpisodeSubmitted(episode_id="again", run_id="other", recorded=recorded)
    await pool.gateway.append([Write("gateway.episode/again", 0, (again,))])
    await cli("prune", "r", "--keep-steps", "2")
    assert await pool.there() == ALL - OLD | {"a.0"}


async def test_a_run_that_says_so_is_pruned_as_it_is_trained(tmp_path: Path) -> None:
    """The same history with keep_steps = 2: no command, and no blob of a step that is younger goes."""
    pool = Pool(tmp_path)
    await pool.grow(keep_steps=2)
    pool.open_others(tmp_path)
    await pool.others(tmp_path)
    told = [event.message for event in await pool.store.read("scheduler.retention/r")]
    steps = ["v"], OLD_IN_ORDER
    assert told == [scheduler_pb2.EpisodesPruned(run_id="r", episode_ids=names, keep_steps=2) for names in steps]
    await pool.hand_over()
    assert await pool.there() == ALL - OLD
    await pool.train(4)
    await pool.hand_over()
    assert await pool.there() == {"d.0", "d.1", "e.0", "e.1"}
    replayed = await verify(Records(pool.store), "r")
    assert (replayed["agrees"], replayed["pruned"]) == (True, 7)
    assert (await prunable(Records(pool.store), "r", 1))["episode_ids"] == ["d.0", "d.1"]


async def test_what_an_older_version_pruned_is_pruned(pool: Pool) -> None:
    """Then a command named the episodes, as an input of the queue."""
    now_s = pool.clock.now().timestamp()
    old = Input(now_s, TrajectoriesPruned(("a.0", "a.1", "v"), 2, 1), occurred_at_s=now_s)
    await pool.store.append(await pool.scheduler.take([("r", old)]))
    assert await pool.scheduler.prune("r", 2) == (3, 2, ["scheduler.retention/r@1"])
    (told,) = [event.message for event in await pool.store.read("scheduler.retention/r")]
    assert told == scheduler_pb2.EpisodesPruned(run_id="r", episode_ids=["b.0", "b.1"], keep_steps=2)
    replayed = await verify(Records(pool.store), "r")
    assert (replayed["agrees"], replayed["pruned"]) == (True, 5)


async def test_what_is_not_closed_is_never_pruned(pool: Pool) -> None:
    """e is in a batch that isn't trained, f runs: whatever is asked for, they stay."""
    with pytest.raises(NotFound, match="run 'x' is not known"):
        await pool.scheduler.prune("x", 0)
    steps, episodes, event_ids = await pool.scheduler.prune("r", 0)
    assert (steps, episodes, event_ids) == (3, 9, ["scheduler.retention/r@1"])
    version = await pool.store.version("scheduler.queue/r")
    assert await pool.scheduler.prune("r", 0) == (3, 0, [])
    assert await pool.store.version("scheduler.queue/r") == version, "what changes nothing isn't recorded"
    (told,) = await pool.store.read("scheduler.retention/r")
    assert isinstance(told.message, scheduler_pb2.EpisodesPruned)
    assert set(told.message.episode_ids) == ALL - {"e.0", "e.1"}
