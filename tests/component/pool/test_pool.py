"""The data pool from real stores and blobs: what became of every episode, SQL over it, exports, and refusals."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from clocks import ManualClock
from forgerl.common.v1 import score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1 import queue_pb2
from forgerl.trainer.v1 import report_pb2
from typer.testing import CliRunner

from services.cli.__main__ import main
from services.cli.app import build_app
from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.event_store import EventStore, Write

NOW = datetime(2026, 1, 1, tzinfo=UTC)
T0 = NOW.timestamp()


def trajectory(episode: str) -> Trajectory:
    """A question of two tokens, two turns of two and one tokens, a tool's answer between them."""
    spans = (Span(0, 1, 3, "d3"), Span(1, 2, 4, "d4"))
    nodes = (
        Node(0, -1, "context", -1, "user", '{"role": "user", "content": "2+2?"}', (5, 6)),
        Node(
            1, 0, "sampled", 0, "assistant", '{"role": "assistant", "content": "ask"}', (7, 8), (-0.5, -1.5), spans, 1.0
        ),
        Node(2, 1, "context", -1, "tool", '{"role": "tool", "content": "4"}', (9,)),
        Node(
            3,
            2,
            "sampled",
            1,
            "assistant",
            '{"role": "assistant", "content": "4"}',
            (4,),
            (-0.25,),
            (Span(0, 1, 4, "d4"),),
        ),
    )
    return Trajectory(episode, "r", nodes)


def record(at_s: float, decisions: list[queue_pb2.Decision] | None = None, **fact: object) -> queue_pb2.QueueAdvanced:
    return queue_pb2.QueueAdvanced(occurred_at_s=T0 + at_s, taken_at_s=T0 + at_s, decisions=decisions or [], **fact)


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Episode a was trained, b dropped for want of spread, c is an evaluation, d waits."""
    catalogue = Catalogue.from_modules((gateway_pb2, scheduler_pb2, trainer_pb2))
    blobs = Blobs.open(f"file://{tmp_path}/blobs")
    (tmp_path / "stores").mkdir()
    sealed = {episode: await blobs.put(encode(trajectory(episode)), MEDIA_TYPE) for episode in "abc"}
    score = score_pb2.Score(performance=1.0, failure_class="solved")
    score.process.add(turn=0, rule="format", value=-0.5)
    records = [
        record(0, submitted=queue_pb2.SubmittedFact(episode_id="a", group_id="g", domain="tool")),
        record(1, submitted=queue_pb2.SubmittedFact(episode_id="b", group_id="h", domain="qa")),
        record(1, submitted=queue_pb2.SubmittedFact(episode_id="c", group_id="e", domain="qa", pinned_step=4)),
        record(1, submitted=queue_pb2.SubmittedFact(episode_id="d", group_id="i", domain="qa")),
        record(
            2,
            [
                queue_pb2.Decision(item_admitted=queue_pb2.ItemAdmitted(group_id="g", position=0)),
                queue_pb2.Decision(item_admitted=queue_pb2.ItemAdmitted(group_id="h", position=1)),
            ],
            tick=queue_pb2.TickFact(),
        ),
    ]
    for episode in "abc":
        finished = queue_pb2.FinishedFact(episode_id=episode, outcome=task_pb2.OUTCOME_COMPLETED, agent_wall_s=1.5)
        scored = queue_pb2.ScoredFact(
            episode_id=episode, performance=1.0, failure_class="solved", score=score.SerializeToString()
        )
        blob = sealed[episode].SerializeToString()
        records += [
            record(3, finished=finished),
            record(
                3.5,
                sealed=queue_pb2.SealedFact(episode_id=episode, trajectory=blob, sampled_tokens=3, first_policy_step=3),
            ),
            record(4, scored=scored),
        ]
    records += [
        record(
            5,
            [
                queue_pb2.Decision(item_taken=queue_pb2.ItemTaken(group_id="g", position=0, batch=5)),
                queue_pb2.Decision(item_dropped=queue_pb2.ItemDropped(group_id="h", position=1, reason="no_spread")),
            ],
            tick=queue_pb2.TickFact(),
        )
    ]
    report = report_pb2.StepReport(run_id="r", step=5)
    report.episodes.add(
        episode_id="a",
        trained=True,
        total_reward=0.95,
        mean_advantage=0.4,
        trained_tokens=3,
        turn_advantages=[0.5, 0.2],
    )
    step = trainer_pb2.StepCompleted(run_id="r", step=5)
    step.report.CopyFrom(await blobs.put(report.SerializeToString(), "application/x-protobuf"))
    for service, stream, messages in (
        ("scheduler", "scheduler.queue/r", tuple(records)),
        ("trainer", "trainer.policy/r", (step,)),
    ):
        store = EventStore.open(f"sqlite:///{tmp_path}/stores/{service}.db", catalogue, ManualClock(NOW))
        await store.append([Write(stream, 0, messages)])
        await store.close()
    for name in ("FORGERL_STORE_URL", "FORGERL_BLOB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORGERL_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def ask(folder: Path) -> Callable[[str], list[dict]]:
    def run(sql: str) -> list[dict]:
        done = CliRunner().invoke(build_app(), ["data", "query", sql, "--json"], catch_exceptions=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_every_episode_has_a_row_with_what_became_of_it(ask):
    rows = ask(
        "select episode_id, kind, state, reason, position, batch, total_reward, performance, outcome, "
        "epoch(sealed_at - submitted_at) as waited from episodes order by 1"
    )
    assert [list(row.values()) for row in rows] == [
        ["a", "train", "trained", None, 0, 5, 0.95, 1.0, "completed", 3.5],
        ["b", "train", "dropped", "no_spread", 1, None, None, 1.0, "completed", 2.5],
        ["c", "evaluation", "evaluated", None, None, None, None, 1.0, "completed", 2.5],
        ["d", "train", "queued", None, None, None, None, None, None, None],
    ]


def test_tokens_carry_logprob_policy_and_advantage(ask):
    rows = ask(
        "select turn, \"index\", token_id, sampled, logprob, policy_step, advantage from tokens where episode_id = 'a'"
    )
    assert [list(row.values()) for row in rows] == [
        [None, 0, 5, False, None, None, None],
        [None, 1, 6, False, None, None, None],
        [0, 0, 7, True, -0.5, 3, 0.5],
        [0, 1, 8, True, -1.5, 4, 0.5],
        [None, 0, 9, False, None, None, None],
        [1, 0, 4, True, -0.25, 4, 0.2],
    ]


def test_turns_rewards_advantages_and_batches(ask):
    turns = ask(
        "select turn, tokens, mean_logprob, first_policy_step, last_policy_step, advantage from turns "
        "where episode_id = 'b'"
    )
    assert [list(row.values()) for row in turns] == [[0, 2, -1.0, 3, 4, None], [1, 1, -0.25, 4, 4, None]]
    assert ask("select term, sum(value) v from rewards group by all order by 1") == [
        {"term": "format", "v": -1.5},
        {"term": "performance", "v": 3.0},
    ]
    assert ask("select batch, turn, advantage from advantages") == [
        {"batch": 5, "turn": 0, "advantage": 0.5},
        {"batch": 5, "turn": 1, "advantage": 0.2},
    ]
    assert ask("select episode_id, trained, trained_tokens from batches") == [
        {"episode_id": "a", "trained": True, "trained_tokens": 3}
    ]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("selekt", "query: Parser Error"),
        ("select * from trajectories", "query: table 'trajectories' is not known; allowed episodes, turns"),
        ("select nothing from episodes", "query: Binder Error"),
        ("select * from read_csv('/etc/passwd')", "query: Permission Error"),
        ("copy (select 1) to '/tmp/never-written.csv'", "query: Permission Error"),
    ],
)
def test_what_is_no_query_over_the_pool_is_one_line(folder, capsys, monkeypatch, sql, said):
    code, told = command(monkeypatch, capsys, "data", "query", sql)
    assert code == 2
    assert told.startswith(f"forgerl: {said}") and told.count("\n") == 1
    assert not Path("/tmp/never-written.csv").exists()


def test_an_unknown_run_or_stack_is_named(folder, capsys, monkeypatch):
    assert command(monkeypatch, capsys, "data", "export", "x", str(folder / "out")) == (
        2,
        "forgerl: run: given 'x'; the pool holds r\n",
    )
    monkeypatch.setenv("FORGERL_DATA_DIR", str(folder / "nowhere"))
    code, told = command(monkeypatch, capsys, "data", "query", "select 1 from episodes")
    assert code == 2
    assert told.startswith(f"forgerl: {folder}/nowhere/stores/scheduler.db: no such store")


def test_a_table_shows_a_thousand_rows_and_says_how_many_there_are(folder, capsys, monkeypatch):
    def asked(rows: int, *options: str) -> tuple[list[str], str]:
        sql = f"select range as n from range({rows})"
        monkeypatch.setattr("sys.argv", ["forgerl", "data", "query", sql, *options])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr()
        return said.out.split(), said.err

    shown, said = asked(250_000)
    assert shown == ["n", *map(str, range(1000))]
    assert said == "forgerl: 1000 of 250000 rows are shown; --json prints all\n"
    assert asked(1000) == (["n", *map(str, range(1000))], "")
    whole, said = asked(1001, "--json")
    assert (len(whole), said) == (2 * 1001, "")


def test_a_query_in_another_encoding_is_one_line_and_utf8_is_read_whatever_the_locale_took_it_for(
    folder, capsys, monkeypatch
):
    sql = "select 'ö' as letter from episodes limit 1"
    # As Python hands an argument over whose bytes the locale can't read.
    latin, ascii_only = (sql.encode(name).decode("ascii", "surrogateescape") for name in ("latin-1", "utf-8"))
    said = "forgerl: query: given bytes that are no UTF-8; allowed SQL in UTF-8\n"
    assert command(monkeypatch, capsys, "data", "query", latin) == (2, said)
    for given in (sql, ascii_only):
        monkeypatch.setattr("sys.argv", ["forgerl", "data", "query", given, "--json"])
        with pytest.raises(SystemExit):
            main()
        assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"letter": "ö"}]


def command(monkeypatch, capsys, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["forgerl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_export_as_parquet_has_a_file_a_table(folder, ask):
    out = folder / "pool"
    CliRunner().invoke(build_app(), ["data", "export", "r", str(out)], catch_exceptions=False)
    counts = {file.stem: parquet.read_table(file).num_rows for file in out.glob("*.parquet")}
    assert counts == {"episodes": 4, "turns": 6, "tokens": 18, "rewards": 6, "advantages": 2, "batches": 1}


def test_export_as_chat_has_a_line_a_branch_and_never_overwrites(folder, capsys, monkeypatch):
    out = folder / "chat.jsonl"
    CliRunner().invoke(build_app(), ["data", "export", "r", str(out), "--format", "jsonl"], catch_exceptions=False)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["episode_id"], line["state"], line["total_reward"]) for line in lines] == [
        ("a", "trained", 0.95),
        ("b", "dropped", None),
        ("c", "evaluated", None),
    ]
    assert [message["content"] for message in lines[0]["messages"]] == ["2+2?", "ask", "4", "4"]
    code, told = command(monkeypatch, capsys, "data", "export", "r", str(out), "--format", "jsonl")
    assert (code, told) == (2, f"forgerl: {out}: is there already; name a new place\n")


def test_a_moved_stack_is_still_read(folder, tmp_path, monkeypatch, ask):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("stores", "blobs"):
        (folder / name).rename(moved / name)
    monkeypatch.setenv("FORGERL_DATA_DIR", str(moved))
    assert ask("select count(*) n from turns") == [{"n": 6}]


async def _remove(folder: Path) -> None:
    """What `forgerl rm` leaves: the record of the queue, and no blob."""
    catalogue = Catalogue.from_modules((gateway_pb2, scheduler_pb2, trainer_pb2))
    store = EventStore.open(f"sqlite:///{folder}/stores/scheduler.db", catalogue, ManualClock(NOW))
    version = len(await store.read("scheduler.queue/r"))
    await store.append([Write("scheduler.queue/r", version, (record(9, run_removed=queue_pb2.RunRemovedFact()),))])
    await store.close()
    for blob in (folder / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()


async def test_a_removed_run_keeps_its_record_and_stops_no_query(folder, capsys, monkeypatch):
    await _remove(folder)

    def asked(sql: str) -> list[dict]:
        monkeypatch.setattr("sys.argv", ["forgerl", "data", "query", sql, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return [json.loads(line) for line in said.out.splitlines()]

    rows = await asyncio.to_thread(asked, "select episode_id, batch, epoch(pruned_at) as gone from episodes order by 1")
    assert [list(row.values()) for row in rows] == [
        ["a", 5, T0 + 9],
        ["b", None, T0 + 9],
        ["c", None, T0 + 9],
        ["d", None, None],
    ]
    assert await asyncio.to_thread(asked, "select * from turns") == []
