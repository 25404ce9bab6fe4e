"""`forgerl data prune` on real stores and blobs and the scheduler's RPC: what is freed, what stays, what is said."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from forgerl.common.v1 import task_pb2
from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2
from forgerl.gateway.v1.run_service_pb2 import RunView
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.scheduler.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message
from scheduler_bench import Bench, group, submitted
from typer.testing import CliRunner

from services.cli.app import build_app
from services.client import Client
from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.kernel.errors import InvalidInput, NotFound
from services.kernel.event_store import EventStore, Write
from services.kernel.rpc import RpcSecurity, serve
from services.scheduler.domain.facts import TrajectoriesPruned
from services.scheduler.entrypoints.replay import Records, verify
from services.scheduler.entrypoints.rpc import SchedulerRpc

TOKEN = "0" * 32
Cli = Callable[..., Awaitable[list[str]]]
ALL = {"v", *(f"{name}.{member}" for name in "abcde" for member in (0, 1))}
OLD = {"v", "a.0", "a.1", "b.0", "b.1"}


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
    """

    async def ending(self, episode_id: str, performance: float) -> list[Message]:
        scored, sealed, finished = await super().ending(episode_id, performance)
        sealed.trajectory.CopyFrom(await self.blobs.put(trajectory(episode_id), MEDIA_TYPE))
        return [scored, sealed, finished]

    async def grow(self) -> None:
        await self.open(lookahead_steps=8, in_flight_items=4)
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

    async def gateway(self, folder: Path) -> dict[str, BlobRef]:
        """What the gateway's store holds beside."""
        turns = {
            name: await self.blobs.put(name.encode() * 40_000, "application/x-protobuf") for name in ("two", "own")
        }
        store = EventStore.open(f"sqlite:///{folder}/gateway.db", self.catalogue, self.clock)
        for name, turn in (("a.0", "two"), ("a.1", "own"), ("f.0", "two")):
            record = record_pb2.TurnRecorded(call_id="1", tokens_blob=turns[turn])
            told = gateway_pb2.EpisodeSubmitted(episode_id=name, run_id="r", kind=task_pb2.EPISODE_KIND_TRAIN)
            await store.append(
                [Write(f"gateway.turns/{name}", 0, (record,)), Write(f"gateway.episode/{name}", 0, (told,))]
            )
        await store.close()
        trainer = EventStore.open(f"sqlite:///{folder}/trainer.db", self.catalogue, self.clock)
        await trainer.close()
        return turns

    async def there(self) -> set[str]:
        """Episodes whose trajectory is in the blob store."""
        found: set[str] = set()
        for name in ALL:
            if await self.blobs.exists(await self.sealed(name)):
                found.add(name)
        return found

    async def sealed(self, episode_id: str) -> BlobRef:
        for event in await self.store.read("scheduler.queue/r"):
            if event.message.sealed.episode_id == episode_id:
                return BlobRef.FromString(event.message.sealed.trajectory)
        raise AssertionError(episode_id)


@pytest.fixture
async def pool(tmp_path: Path) -> Pool:
    made = Pool(tmp_path)
    await made.grow()
    return made


@pytest.fixture
async def turns(pool: Pool, tmp_path: Path) -> dict[str, BlobRef]:
    return await pool.gateway(tmp_path)


@pytest.fixture
async def cli(pool: Pool, turns: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cli]:
    """The command, beside a scheduler that answers."""
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
        return done.output.splitlines()

    serving = asyncio.create_task(server.run())
    yield run
    serving.cancel()
    await asyncio.wait([serving])


async def test_what_closed_long_ago_is_freed_and_nothing_else(pool: Pool, turns: dict[str, BlobRef], cli: Cli) -> None:
    """Three steps are done; keeping two leaves all that closed after step 1."""
    before = await pool.store.version("scheduler.queue/r")
    assert await pool.there() == ALL
    said = await cli("prune", "r", "--keep-steps", "2", "--dry-run")
    assert said[0] == "forgerl: 1 blobs stay, since episodes that are kept refer to them"
    assert said[1].startswith("forgerl: 6 blobs, 0.0 MB would be freed: 5 episodes of r closed by step 1 of 3")
    assert await pool.there() == ALL
    assert await pool.store.version("scheduler.queue/r") == before

    await cli("prune", "r", "--keep-steps", "2")
    assert await pool.there() == ALL - OLD
    assert await pool.blobs.exists(turns["two"]), "f.0, which runs, refers to it as well"
    assert not await pool.blobs.exists(turns["own"])
    assert await pool.store.version("scheduler.queue/r") == before + 1, "one record says it all"
    assert (await cli("prune", "r", "--keep-steps", "2"))[-1].startswith(
        "forgerl: 0 blobs, 0.0 MB are freed: 0 episodes"
    )
    assert await pool.store.version("scheduler.queue/r") == before + 1


async def test_the_record_goes_on_telling_everything(pool: Pool, cli: Cli) -> None:
    rpc = SchedulerRpc(pool.scheduler)
    books = await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    told = await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="a.0"), None)
    await cli("prune", "r", "--keep-steps", "2")
    assert await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None) == books
    why = await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="a.0"), None)
    assert list(why.lines)[:-1] == list(told.lines)
    version = await pool.store.version("scheduler.queue/r")
    assert (why.verdict, why.lines[-1].fact) == ("trained", "trajectory pruned: closed 2 steps ago or longer")
    assert why.lines[-1].event_id == f"scheduler.queue/r@{version}"
    replayed = await verify(Records(pool.store), "r")
    assert (replayed["agrees"], replayed["balanced"]) == (True, True)

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


async def test_a_pruning_that_was_cut_short_is_finished_by_the_next(pool: Pool, cli: Cli) -> None:
    """The record was written, and then the command was killed."""
    await pool.scheduler.prune("r", pool_fact("a.0", "a.1", "b.0", "b.1", "v"))
    version = await pool.store.version("scheduler.queue/r")
    assert await pool.there() == ALL
    await cli("prune", "r", "--keep-steps", "2")
    assert await pool.there() == ALL - OLD
    assert await pool.store.version("scheduler.queue/r") == version, "not recorded twice"


async def test_a_recorded_submission_of_the_same_blob_keeps_it(pool: Pool, cli: Cli, tmp_path: Path) -> None:
    """a.0's trajectory was submitted anew as recorded, to another run that has not sealed it yet."""
    store = EventStore.open(f"sqlite:///{tmp_path}/gateway.db", pool.catalogue, pool.clock)
    recorded = task_pb2.RecordedEpisode(trajectory=await pool.sealed("a.0"))
    again = gateway_pb2.EpisodeSubmitted(episode_id="again", run_id="other", recorded=recorded)
    await store.append([Write("gateway.episode/again", 0, (again,))])
    await store.close()
    await cli("prune", "r", "--keep-steps", "2")
    assert await pool.there() == ALL - OLD | {"a.0"}


@pytest.mark.parametrize("episode_id", ["e.0", "f.1", "nobody"])
async def test_what_is_not_closed_can_not_be_said_to_be_pruned(pool: Pool, episode_id: str) -> None:
    """e is in a batch that isn't trained, f runs."""
    version = await pool.store.version("scheduler.queue/r")
    with pytest.raises(
        InvalidInput, match=f"episode_ids: given '{episode_id}'; allowed episodes of run 'r' that are closed"
    ):
        await pool.scheduler.prune("r", pool_fact("a.0", episode_id))
    with pytest.raises(NotFound, match="run 'x' is not known"):
        await pool.scheduler.prune("x", pool_fact("a.0"))
    assert await pool.store.version("scheduler.queue/r") == version


def pool_fact(*episode_ids: str) -> TrajectoriesPruned:
    return TrajectoriesPruned(episode_ids, 2, 1)
