"""Spans that are put together at their end: the same as live ones, and as quiet where nothing is traced."""

import json
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from temporalio.contrib.opentelemetry import create_tracer_provider

from services.kernel import telemetry
from services.kernel.telemetry import whole_span

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"


def traced(monkeypatch: pytest.MonkeyPatch, provider) -> InMemorySpanExporter:
    found = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return found


@pytest.mark.parametrize("make", [TracerProvider, create_tracer_provider])
def test_it_is_what_a_live_span_is(monkeypatch: pytest.MonkeyPatch, make) -> None:
    found = traced(monkeypatch, provider := make())
    traceparent, end = whole_span("thing", {"key": "a"}, PARENT, trace.SpanKind.CONSUMER)
    assert not found.get_finished_spans()
    end()
    with telemetry.use_parent(PARENT):
        provider.get_tracer("t").start_span("thing", kind=trace.SpanKind.CONSUMER, attributes={"key": "a"}).end()
    whole, live = [json.loads(span.to_json()) for span in found.get_finished_spans()]
    assert traceparent == f"00-{whole['context']['trace_id'][2:]}-{whole['context']['span_id'][2:]}-01"
    assert whole["start_time"] <= whole["end_time"] <= live["end_time"]
    for own in (whole, live):
        del own["context"]["span_id"], own["start_time"], own["end_time"]
    assert whole == live and whole["parent_id"] == f"0x{PARENT[36:52]}"


def test_without_a_parent_it_is_a_root_which_the_sampler_decides_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = traced(monkeypatch, TracerProvider())
    traceparent, end = whole_span("thing", {})
    end()
    (span,) = found.get_finished_spans()
    assert span.parent is None and traceparent.endswith("-01")
    silent = traced(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))
    traceparent, end = whole_span("thing", {})
    end()
    assert traceparent.endswith("-00") and not silent.get_finished_spans()


def test_below_what_is_not_sampled_nothing_is_written_but_the_trace_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = traced(monkeypatch, TracerProvider())
    traceparent, end = whole_span("thing", {}, UNSAMPLED)
    end()
    assert traceparent[:35] == UNSAMPLED[:35] and traceparent.endswith("-00") and not found.get_finished_spans()


@pytest.mark.parametrize("given", ["", "nonsense", PARENT, PARENT.upper(), "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_where_nothing_is_traced_the_traceparent_is_the_one_given(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    traceparent, end = whole_span("thing", {}, given)
    end()
    assert traceparent == given


def test_the_sdk_s_own_switch_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    found = traced(monkeypatch, TracerProvider())
    traceparent, end = whole_span("thing", {}, PARENT)
    end()
    assert traceparent == PARENT and not found.get_finished_spans()


def test_text_that_is_no_unicode_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(telemetry.JsonLines(tmp_path / "spans.jsonl", "sample")))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    for key in ("half a pair \ud800", "äöü\n"):
        whole_span("thing", {"key": key})[1]()
    lines = (tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["attributes"]["key"] for line in lines] == ["half a pair \ud800", "äöü\n"]
