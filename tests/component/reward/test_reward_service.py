"""The reward service on a real event store and blob store: orders of arrival, failures, deadlines, repeats."""

import asyncio
import itertools
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clocks import ManualClock
from forgerl.common.v1 import task_pb2
from forgerl.events.v1.gateway_pb2 import EpisodeCancelled, EpisodeSubmitted, TrajectorySealed
from forgerl.events.v1.reward_pb2 import EpisodeScored, ScoringFailed
from forgerl.events.v1.rollout_pb2 import EpisodeFailed, EpisodeFinished, EpisodeStarted
from google.protobuf.message import Message
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.contract.outcomes import FailureClass, Treatment
from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.environments.interface import Task, ToolSpec, Verdict
from services.environments.registry import environments
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.reward import application
from services.reward.adapters.environment_verifier import EnvironmentVerifier
from services.reward.application import Scoring
from services.reward.bootstrap import EVENT_MODULES
from services.reward.ports import GraderError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Judge:
    """An environment of which only the verifier matters."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.release = threading.Event()

    def tools(self, task: Task) -> list[ToolSpec]:
        return [ToolSpec("python", "runs", {})]

    def verify(self, task: Task, answer: str, transcript: Sequence[Mapping[str, object]]) -> Verdict:
        self.asked.append((answer, len(transcript)))
        match answer:
            case "raise":
                raise ZeroDivisionError("no")
            case "hang":
                self.release.wait(60)
            case "nonsense":
                return Verdict(float("nan"), "?")
            case _:
                pass
        return Verdict(1.0 if answer == "4" else 0.25, f"given {answer}")


class Bench:
    def __init__(self, root: Path) -> None:
        self.judge = Judge()
        self.store = EventStore.open(
            f"sqlite:///{root}/reward.db", Catalogue.from_modules(EVENT_MODULES), ManualClock(NOW)
        )
        self.blobs = Blobs.open(f"file://{root}/blobs")
        verifier = EnvironmentVerifier({"judge": self.judge}, 0.3, 2)
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.scoring = Scoring(self.store, self.blobs, verifier, provider.get_tracer("test"))
        self.inbox = Inbox(self.store, "reward")
        self.versions: dict[str, int] = {}

    def event(self, topic: str, message: Message) -> Event:
        stream = f"{topic}/{message.episode_id}"
        self.versions[stream] = self.versions.get(stream, 0) + 1
        trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        return Event(stream, self.versions[stream], NOW, message, Cause(message.episode_id, "", trace))

    async def facts(
        self, episode: str, answer: str, outcome: task_pb2.Outcome = task_pb2.OUTCOME_COMPLETED
    ) -> list[Event]:
        """Submitted, finished, sealed."""
        task = task_pb2.Task(environment="judge", task_id="t", split=task_pb2.SPLIT_TRAIN, payload=b"{}")
        nodes = (
            Node(0, -1, "context", -1, "user", '{"role":"user","content":"2+2?"}', (1, 2)),
            Node(
                1, 0, "sampled", 0, "assistant", '{"role":"assistant","content":""}', (3,), (-1.0,),
                (Span(0, 1, 0, "d"),), 1.0, 1.0, "stop",
            ),
        )  # fmt: skip
        ref = await self.blobs.put(encode(Trajectory(episode, "run-1", nodes)), MEDIA_TYPE)
        return [
            self.event("gateway.episode", EpisodeSubmitted(episode_id=episode, run_id="run-1", task=task)),
            self.event("rollout.episode", EpisodeFinished(episode_id=episode, answer=answer, outcome=outcome)),
            self.event("gateway.episode", TrajectorySealed(episode_id=episode, run_id="run-1", trajectory=ref)),
        ]

    async def feed(self, *events: Event) -> None:
        await self.inbox.handle(events, self.scoring.handle)

    async def scores(self, episode: str) -> list[Message]:
        return [event.message for event in await self.store.read(f"reward.score/{episode}")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_scored_in_every_order_of_arrival_once(tmp_path: Path):
    for number, order in enumerate(itertools.permutations(range(3))):
        if order.index(0) > order.index(2):
            continue  # both are of one stream, and arrive in its order
        (tmp_path / str(number)).mkdir()
        bench = Bench(tmp_path / str(number))
        facts = await bench.facts("e", "4")
        for index in order:
            assert await bench.scores("e") == []
            await bench.feed(facts[index])
        (scored,) = await bench.scores("e")
        assert isinstance(scored, EpisodeScored)
        assert (scored.run_id, scored.score.performance, scored.score.failure_class) == ("run-1", 1.0, "solved")
        assert [(term.turn, term.rule) for term in scored.score.process] == [(0, "format")]
        assert bench.judge.asked == [("4", 2)]


async def test_scoring_is_a_span_of_the_episodes_trace(bench: Bench):
    await bench.feed(*(await bench.facts("e", "4")))
    (span,) = bench.spans.get_finished_spans()
    assert (span.name, f"{span.context.trace_id:032x}") == ("episode.score", "a" * 32)
    assert span.attributes == {"episode_id": "e"}


async def test_a_repeat_is_not_scored_again(bench: Bench):
    facts = await bench.facts("e", "4")
    await bench.feed(*facts)
    await bench.feed(*facts)
    assert len(await bench.scores("e")) == 1
    assert len(bench.judge.asked) == 1


async def test_a_batch_of_many_episodes_is_one_commit(bench: Bench):
    facts = [fact for number in range(20) for fact in await bench.facts(f"e{number}", "4" if number % 2 else "5")]
    await bench.feed(*facts)
    classes = [(await bench.scores(f"e{number}"))[0].score.failure_class for number in range(20)]
    assert classes == ["wrong", "solved"] * 10
    causes = [(await bench.store.read(f"reward.score/e{number}"))[0].cause.correlation_id for number in range(20)]
    assert causes == [f"e{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ("raise", "verifier raised ZeroDivisionError: no"),
        ("hang", "verifier is still running after 0.3 s"),
        ("nonsense", "score: given nan"),
    ],
)
async def test_a_verifier_that_fails_gives_no_score_and_no_zero(bench: Bench, answer: str, detail: str):
    await bench.feed(*(await bench.facts("e", answer)))
    bench.judge.release.set()
    (failed,) = await bench.scores("e")
    assert isinstance(failed, ScoringFailed)
    assert detail in failed.detail


async def test_verifiers_that_hang_leave_room_for_others(bench: Bench):
    facts = [fact for number in range(4) for fact in await bench.facts(f"h{number}", "hang")]
    facts += await bench.facts("e", "4")
    await asyncio.wait_for(bench.feed(*facts), 10)
    bench.judge.release.set()
    assert isinstance((await bench.scores("e"))[0], EpisodeScored)


async def test_threads_are_used_again_unless_their_verifier_hangs(eventually):
    judge = Judge()
    verifier = EnvironmentVerifier({"judge": judge}, 0.3, 2)
    task = task_pb2.Task(environment="judge", task_id="t", split=task_pb2.SPLIT_TRAIN, payload=b"{}")
    before = verifying()
    for _ in range(3):
        assert await asyncio.gather(*(verifier.verify(task, "4", []) for _ in range(10))) == [(1.0, "given 4")] * 10
        with pytest.raises(GraderError, match="ZeroDivisionError"):
            await verifier.verify(task, "raise", [])
    assert len(verifying() - before) == 2
    with pytest.raises(GraderError, match="still running"):
        await verifier.verify(task, "hang", [])
    assert await asyncio.gather(*(verifier.verify(task, "4", []) for _ in range(10))) == [(1.0, "given 4")] * 10
    assert len(verifying() - before) == 3
    judge.release.set()
    await eventually(lambda: len(verifying() - before) == 2)


def verifying() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "verifier"}


@pytest.mark.parametrize(
    ("outcome", "failure_class"),
    [(task_pb2.OUTCOME_AGENT_TIMEOUT, "agent_timeout"), (task_pb2.OUTCOME_CONTEXT_OVERFLOW, "context_overflow")],
)
async def test_budgets_that_ran_out_are_zero_and_flagged_without_a_verifier(
    bench: Bench, outcome: task_pb2.Outcome, failure_class: str
):
    await bench.feed(*(await bench.facts("e", "4", outcome)))
    (scored,) = await bench.scores("e")
    assert isinstance(scored, EpisodeScored)
    assert (scored.score.performance, scored.score.failure_class) == (0.0, failure_class)
    assert bench.judge.asked == []


async def test_an_ending_without_a_reward_is_never_a_zero(bench: Bench):
    await bench.feed(*(await bench.facts("e", "4", task_pb2.OUTCOME_INFRA)))
    (failed,) = await bench.scores("e")
    assert isinstance(failed, ScoringFailed)
    assert failed.detail == "outcome infra: the failure contract gives it no reward"


async def test_the_contracts_row_is_what_a_budget_that_ran_out_scores(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    row = Treatment(trained=True, counts=True, verified=False, performance=0.25)
    monkeypatch.setattr(application, "treatment", {FailureClass.AGENT_TIMEOUT: row}.__getitem__)
    await bench.feed(*(await bench.facts("e", "4", task_pb2.OUTCOME_AGENT_TIMEOUT)))
    (scored,) = await bench.scores("e")
    assert isinstance(scored, EpisodeScored) and scored.score.performance == 0.25


async def test_failed_and_cancelled_episodes_are_never_scored(bench: Bench):
    submitted, _, sealed = await bench.facts("f", "4")
    failed = EpisodeFailed(episode_id="f", outcome=task_pb2.OUTCOME_INFRA)
    bench.versions["rollout.episode/f"] = 0
    started = bench.event("rollout.episode", EpisodeStarted(episode_id="f"))
    await bench.feed(submitted, started, bench.event("rollout.episode", failed), sealed)
    submitted, finished, _ = await bench.facts("c", "4")
    bench.versions["gateway.episode/c"] = 1
    await bench.feed(submitted, bench.event("gateway.episode", EpisodeCancelled(episode_id="c")), finished)
    assert await bench.scores("f") == await bench.scores("c") == []


async def test_a_missing_trajectory_is_a_failure_to_score_with_its_reason(bench: Bench):
    facts = await bench.facts("e", "4")
    sealed = facts[2].message
    await bench.blobs.delete(sealed.trajectory.uri)
    await bench.feed(*facts)
    (failed,) = await bench.scores("e")
    assert isinstance(failed, ScoringFailed)
    assert "is missing" in failed.detail


async def test_a_long_answer_comes_by_blob(bench: Bench):
    submitted, finished, sealed = await bench.facts("e", "")
    finished.message.answer_blob.CopyFrom(await bench.blobs.put(b"4", "text/plain"))
    await bench.feed(submitted, finished, sealed)
    assert bench.judge.asked == [("4", 2)]


async def test_an_unknown_environment_is_named(bench: Bench):
    facts = await bench.facts("e", "4")
    facts[0].message.task.environment = "mars"
    await bench.feed(*facts)
    (failed,) = await bench.scores("e")
    assert isinstance(failed, ScoringFailed)
    assert failed.detail == "environment 'mars' is not known here"


@pytest.mark.parametrize("name", ["tool", "qa", "reasoning"])
async def test_the_built_in_environments_judge_here(name: str):
    verifier = EnvironmentVerifier(environments(), 30.0, 1)
    task = environments()[name].task("train", 3)
    wire = task_pb2.Task(environment=name, task_id=task.task_id, split=task_pb2.SPLIT_TRAIN, payload=task.payload)
    performance, detail = await verifier.verify(wire, "surely not this", [])
    assert 0.0 <= performance < 0.5
    assert detail
    assert isinstance(await verifier.tool_names(wire), frozenset)
