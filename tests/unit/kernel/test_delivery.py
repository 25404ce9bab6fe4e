"""Retries, dead letters and parked streams, and the trace through a consumer, without a broker."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from forgerl.events.v1 import gateway_pb2
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from services.kernel import delivery, telemetry
from services.kernel.envelope import Cause, Event, to_headers
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import Write
from services.kernel.inbox import Gap
from services.kernel.topics import BrokerSettings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class FakeRecord:
    headers: Sequence[tuple[str, bytes]]
    value: bytes
    topic: str = "forgerl.gateway.episode.v1"


def record(key: str, version: int) -> FakeRecord:
    message = gateway_pb2.EpisodeCancelled(episode_id=key)
    event = Event(f"gateway.episode/{key}", version, datetime(2026, 1, 1, tzinfo=UTC), message, Cause("c", "", PARENT))
    return FakeRecord(to_headers(event), message.SerializeToString())


@dataclass
class FakeInbox:
    """Knows in memory what was seen, as the real one does in its store."""

    at: dict[str, int] = field(default_factory=dict)
    written: list[Write] = field(default_factory=list)

    async def handle(self, events, handler) -> None:
        fresh = [event for event in events if event.version > self.at.get(event.stream, 0)]
        for event in fresh[:1]:
            if event.version != self.at.get(event.stream, 0) + 1:
                raise Gap("missing")
        if fresh:
            self.written += await handler(fresh)
            self.at |= {event.stream: event.version for event in fresh}


@dataclass
class Bench:
    """A delivery whose handler fails for the ids in `failing`; what was buried stands in `buried`."""

    failing: dict[str, list[Exception]] = field(default_factory=dict)
    handled: list[str] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        patience = BrokerSettings("nowhere", transient_for_s=1.0, unknown_for_s=0.12, gap_for_s=0.0)
        self.inbox = FakeInbox()
        self.delivery = delivery.Delivery(self.inbox, self.handle, self.bury, patience)  # type: ignore[arg-type]

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        for event in events:
            if self.failing.get(event.id):
                raise self.failing[event.id].pop(0)
        self.handled += [event.id for event in events]
        self.seen += events
        return [Write(f"out.x/{events[-1].key}", 0, (events[-1].message,))]

    async def bury(self, record, error: Exception) -> None:
        self.buried.append(dict(record.headers).get("ce_id", b"?").decode("utf-8", "replace"))


async def test_of_a_mixed_batch_only_the_bad_stream_suffers() -> None:
    bench = Bench(failing={"gateway.episode/b@1": [Permanent("bad")] * 2})
    await bench.delivery.deliver([record("a", 1), record("b", 1), record("b", 2), record("c", 1), record("a", 2)])
    assert bench.handled == [f"gateway.episode/{name}" for name in ("a@1", "a@2", "c@1")]
    assert bench.buried == ["gateway.episode/b@1", "gateway.episode/b@2"]
    await bench.delivery.deliver([record("b", 3)])
    assert bench.buried[2:] == ["gateway.episode/b@3"]
    await bench.delivery.deliver([record("b", 1), record("b", 2)])
    await bench.delivery.deliver([record("b", 3)])
    assert bench.handled[3:] == [f"gateway.episode/b@{version}" for version in (1, 2, 3)]


async def test_a_stream_that_was_replayed_is_patient_with_gaps_again(eventually) -> None:
    bench = Bench(failing={"gateway.episode/b@1": [Permanent("bad")] * 2})
    patience = BrokerSettings("nowhere", gap_for_s=10.0)
    bench.delivery = delivery.Delivery(bench.inbox, bench.handle, bench.bury, patience)  # type: ignore[arg-type]
    await bench.delivery.deliver([record("b", 1)])
    await bench.delivery.deliver([record("b", 1)])
    assert (bench.handled, bench.buried) == (["gateway.episode/b@1"], ["gateway.episode/b@1"])
    late = asyncio.create_task(bench.delivery.deliver([record("b", 3)]))
    await eventually(lambda: bench.delivery._failing_since_s or late.done(), timeout_s=5.0)
    bench.inbox.at["gateway.episode/b"] = 2
    await late
    assert (bench.handled[1:], bench.buried[1:]) == (["gateway.episode/b@3"], [])


async def test_a_transient_failure_is_retried_in_place() -> None:
    bench = Bench(failing={"gateway.episode/a@1": [Transient("away")] * 3})
    await bench.delivery.deliver([record("a", 1)])
    assert (bench.handled, bench.buried) == (["gateway.episode/a@1"], [])


async def test_an_unknown_failure_is_given_up_sooner() -> None:
    bench = Bench(failing={"gateway.episode/a@1": [ValueError("bug")] * 99})
    await bench.delivery.deliver([record("a", 1)])
    assert (bench.handled, bench.buried) == ([], ["gateway.episode/a@1"])


async def test_what_cannot_be_buried_is_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LONGEST_PAUSE_S", 0.0)
    bench = Bench(failing={"gateway.episode/a@1": [Permanent("bad")] * 2})

    async def broken(record, error) -> None:
        raise Transient("the broker is away")

    bench.delivery._bury = broken  # type: ignore[method-assign]
    with pytest.raises(Transient):
        await bench.delivery.deliver([record("a", 1)])


async def test_what_follows_is_a_child_of_the_event_s_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(telemetry.JsonLines(tmp_path / "spans.jsonl", "sample")))
    bench = Bench()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    await bench.delivery.deliver([record("a", 1), record("b", 1)])
    spans = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    assert [(s["trace_id"], s["parent_span_id"], s["kind"], s["service"]) for s in spans] == [
        ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "consumer", "sample")
    ] * 2
    assert spans[0]["name"] == "EpisodeCancelled consumed"
    keys = sorted(span["attributes"]["messaging.kafka.message.key"] for span in spans)
    assert keys == ["a", "b"]
    written = bench.inbox.written[0]
    child = next(span for span in spans if span["attributes"]["messaging.kafka.message.key"] == "b")
    assert written.cause.traceparent == f"00-{child['trace_id']}-{child['span_id']}-01"  # type: ignore[attr-defined]
    assert written.cause.causation_id == "gateway.episode/b@1"  # type: ignore[attr-defined]


def test_links_and_parents_come_from_traceparents() -> None:
    found = telemetry.link(PARENT)
    assert found is not None and f"{found.context.span_id:016x}" == "b7ad6b7169203331"
    assert telemetry.link("") is None and telemetry.link("nonsense") is None
    with telemetry.use_parent(PARENT):
        assert telemetry.current_traceparent() == PARENT
    assert telemetry.current_traceparent() == ""
