"""DESIGN 10 as a table, through the whole scheduler: events of the other services in; admission, batch, ledger out.

Each class ends the third member of a group whose other two are solved and wrong, so that the group itself is trained.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from forgerl.common.v1 import score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message
from scheduler_bench import Bench, submitted

from services.contract.outcomes import FailureClass, class_of_outcome, treatment
from services.scheduler.entrypoints.rpc import SchedulerRpc

MEMBERS = ("g.0", "g.1", "g.2")
WHO = {"episode_id": "g.2", "run_id": "r"}


def finished(outcome: task_pb2.Outcome) -> Message:
    return rollout_pb2.EpisodeFinished(**WHO, outcome=outcome, agent_wall_s=2.0)


def failed(outcome: task_pb2.Outcome, detail: str) -> Message:
    return rollout_pb2.EpisodeFailed(**WHO, outcome=outcome, detail=detail)


def scored(performance: float, failure_class: str) -> Message:
    return reward_pb2.EpisodeScored(**WHO, score=score_pb2.Score(performance=performance, failure_class=failure_class))


def sealed(tokens: int = 7) -> Message:
    return gateway_pb2.TrajectorySealed(**WHO, sampled_tokens=tokens, turn_count=2, branch_count=1)


@dataclass(frozen=True)
class Row:
    """How a class arrives, and what must become of it."""

    events: tuple[Message, ...]
    reward: float | None
    eligible: bool
    why_not: str
    outcome: task_pb2.Outcome
    said: str


COMPLETED, TIMEOUT = task_pb2.OUTCOME_COMPLETED, task_pb2.OUTCOME_AGENT_TIMEOUT
OVERFLOW, INFRA, CANCELLED = task_pb2.OUTCOME_CONTEXT_OVERFLOW, task_pb2.OUTCOME_INFRA, task_pb2.OUTCOME_CANCELLED
TABLE: dict[FailureClass, Row] = {
    FailureClass.SOLVED: Row(
        (finished(COMPLETED), sealed(), scored(0.75, "solved")), 0.75, True, "", COMPLETED, "performance 0.75, solved"
    ),
    FailureClass.WRONG: Row(
        (finished(COMPLETED), sealed(), scored(0.0, "wrong")), 0.0, True, "", COMPLETED, "performance 0, wrong"
    ),
    FailureClass.AGENT_TIMEOUT: Row(
        (finished(TIMEOUT), sealed(), scored(0.0, "agent_timeout")), 0.0, True, "", TIMEOUT, "0, agent_timeout"
    ),
    FailureClass.CONTEXT_OVERFLOW: Row(
        (finished(OVERFLOW), sealed(), scored(0.0, "context_overflow")), 0.0, True, "", OVERFLOW, "0, context_overflow"
    ),
    FailureClass.INFRA: Row(
        (failed(INFRA, "sandbox lost"), sealed()), None, False, "infra", INFRA, "failed: sandbox lost"
    ),
    FailureClass.GRADER_ERROR: Row(
        (finished(COMPLETED), sealed(), reward_pb2.ScoringFailed(**WHO, detail="ZeroDivisionError")),
        None,
        False,
        "grader_error",
        COMPLETED,
        "could not be scored: ZeroDivisionError",
    ),
    FailureClass.CANCELLED: Row(
        (gateway_pb2.EpisodeCancelled(**WHO, reason="user"), failed(CANCELLED, "cancelled"), sealed()),
        None,
        False,
        "cancelled",
        CANCELLED,
        "cancelled: user",
    ),
}


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    await bench.open(group_size=3)
    await bench.feed(*[submitted(member, "g") for member in MEMBERS])
    return bench


def test_the_table_has_every_class_and_says_what_the_contract_says() -> None:
    assert set(TABLE) == set(FailureClass)
    for failure_class, row in TABLE.items():
        how = treatment(failure_class)
        assert (row.eligible, row.eligible) == (how.trained, how.counts)
        assert (row.reward is not None) == (how.verified or how.performance is not None)
        if how.performance is not None:
            assert row.reward == how.performance
        if not how.verified and failure_class is not FailureClass.GRADER_ERROR:
            assert class_of_outcome(row.outcome) is failure_class


@pytest.mark.parametrize("failure_class", list(FailureClass), ids=lambda found: found.value)
@pytest.mark.parametrize("last", [True, False], ids=["last_to_end", "first_to_end"])
async def test_every_class_from_its_events_to_batch_and_ledger(
    bench: Bench, failure_class: FailureClass, last: bool
) -> None:
    row = TABLE[failure_class]
    for ending in (("g.0", 1.0), ("g.1", 0.0), None) if last else (None, ("g.0", 1.0), ("g.1", 0.0)):
        if ending is None:
            await bench.feed(*row.events)
        else:
            await bench.finish(*ending)
    (batch,) = await bench.batches()
    episode = (await bench.manifest(batch)).items[0].episodes[2]
    assert (episode.eligible, episode.why_not, episode.outcome) == (row.eligible, row.why_not, row.outcome)
    assert (episode.score.performance if episode.HasField("score") else None) == row.reward, "never a silent zero"

    members = MEMBERS if row.eligible else MEMBERS[:2]
    await bench.train(1, *[report_pb2.EpisodeReport(episode_id=m, trained=True, loss_weight=0.3) for m in members])
    rpc = SchedulerRpc(bench.scheduler)
    why = await rpc.ExplainEpisode(pb.ExplainEpisodeRequest(episode_id="g.2"), None)
    assert why.verdict == ("trained" if row.eligible else "dropped")
    assert any(row.said in line.fact for line in why.lines), [line.fact for line in why.lines]
    assert all(line.event_id for line in why.lines)
    ledger = await rpc.GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    assert ledger.balanced
    assert (ledger.submitted, ledger.trained, ledger.in_flight) == (3, len(members), 0)
    assert dict(ledger.dropped) == ({} if row.eligible else {row.why_not: 1})


async def test_a_deadline_is_the_schedulers_own_class(bench: Bench) -> None:
    """Revoked, its tokens recorded and not trained; the group goes on over those who were in time."""
    await bench.finish("g.0", 1.0)
    await bench.finish("g.1", 0.0)
    bench.wait(120)
    await bench.scheduler.tick()
    (batch,) = await bench.batches()
    episode = (await bench.manifest(batch)).items[0].episodes[2]
    assert (episode.eligible, episode.why_not) == (False, "deadline")
    revoked = (await bench.published("scheduler.admission/g.2"))[-1]
    assert isinstance(revoked, scheduler_pb2.EpisodeRevoked)
    assert revoked.reason == "deadline"
    await bench.finish("g.2", 1.0)
    assert len(await bench.batches()) == 1, "what comes after the deadline changes nothing"


@pytest.mark.parametrize("failure_class", [FailureClass.INFRA, FailureClass.GRADER_ERROR, FailureClass.CANCELLED])
async def test_excluded_members_can_leave_too_few(bench: Bench, failure_class: FailureClass) -> None:
    """One eligible member has no baseline: the group is dropped, and each member says why itself was."""
    await bench.finish("g.0", 1.0)
    await bench.feed(rollout_pb2.EpisodeFailed(episode_id="g.1", run_id="r", outcome=INFRA, detail="engine"))
    await bench.feed(*TABLE[failure_class].events)
    (dropped,) = await bench.published("scheduler.batch/r")
    assert isinstance(dropped, scheduler_pb2.SampleDropped)
    assert dropped.reason == "too_few_eligible"
    ledger = await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    expected = {"too_few_eligible": 1, "infra": 1}
    expected[failure_class.value] = expected.get(failure_class.value, 0) + 1
    assert dict(ledger.dropped) == expected
    assert ledger.balanced
    assert dict(ledger.domains["tool"].dropped_items) == {"too_few_eligible": 1}


async def test_no_spread_is_dropped_with_its_reason_and_counts_as_consumed(bench: Bench) -> None:
    for member in MEMBERS:
        await bench.finish(member, 0.0)
    (dropped,) = await bench.published("scheduler.batch/r")
    assert isinstance(dropped, scheduler_pb2.SampleDropped)
    assert (dropped.reason, list(dropped.episode_ids)) == ("no_spread", list(MEMBERS))
    ledger = await SchedulerRpc(bench.scheduler).GetLedger(pb.GetLedgerRequest(run_id="r"), None)
    book = ledger.domains["tool"]
    assert (book.consumed_items, book.taken_items, dict(book.dropped_items)) == (1, 0, {"no_spread": 1})
    assert dict(ledger.achieved_mix) == {"tool": 1.0}


async def test_a_grader_error_may_be_scored_again_before_its_item_is_consumed(bench: Bench) -> None:
    await bench.feed(*TABLE[FailureClass.GRADER_ERROR].events)
    await bench.feed(scored(1.0, "solved"))
    await bench.finish("g.0", 1.0)
    await bench.finish("g.1", 0.0)
    (batch,) = await bench.batches()
    assert [e.eligible for e in (await bench.manifest(batch)).items[0].episodes] == [True] * 3
