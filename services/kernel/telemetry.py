"""Traces: spans to a collector where one is named, and always as JSON lines under the data folder.

Refuses to put spans on the path of the work: they are exported in batches, from a thread, and lost with a kill.
"""

# The SDK has no way to hand in a span that is over.
# pyright: reportPrivateUsage=false

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import orjson
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from services.kernel.settings import ServiceSettings


def current_traceparent() -> str:
    """W3C traceparent of the span in force; empty outside any."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def _above(traceparent: str) -> context.Context:
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context.Context())


def link(traceparent: str) -> trace.Link | None:
    """A span link to another trace; None when `traceparent` is empty or malformed."""
    span = trace.get_current_span(_above(traceparent)).get_span_context()
    return trace.Link(span) if span.is_valid else None


@contextmanager
def use_parent(traceparent: str) -> Generator[None]:
    """Spans started inside become children of `traceparent`."""
    token = context.attach(_above(traceparent))
    try:
        yield
    finally:
        context.detach(token)


def whole_span(
    name: str, facts: Mapping[str, str], traceparent: str = "", kind: trace.SpanKind = trace.SpanKind.INTERNAL
) -> tuple[str, Callable[[], None]]:
    """A span below `traceparent`, or a root: its own traceparent, and what is to be called when it's over.

    It is put together at its end, for what happens very often: one that could be added to meanwhile takes five times
    as long. Where nothing is traced, the traceparent is the one given.
    """
    began_ns, parent = time_ns(), trace.get_current_span(_above(traceparent)).get_span_context()
    provider = trace.get_tracer_provider()
    # The SDK's own, inside of what makes it safe for replay.
    provider = getattr(provider, "_tracer_provider", provider)
    if not isinstance(provider, TracerProvider) or provider._disabled:
        return traceparent, lambda: None
    flags, trace_id = parent.trace_flags, parent.trace_id
    if not parent.is_valid:
        trace_id = provider.id_generator.generate_trace_id()
        flags = trace.TraceFlags(provider.sampler.should_sample(None, trace_id, name).decision.is_sampled())
    own = trace.SpanContext(trace_id, provider.id_generator.generate_span_id(), is_remote=False, trace_flags=flags)

    def end() -> None:
        if flags.sampled:
            span = ReadableSpan(name, own, parent if parent.is_valid else None, provider.resource, facts, kind=kind,
                                start_time=began_ns, end_time=time_ns(),
                                instrumentation_scope=InstrumentationScope("forgerl.kernel"))  # fmt: skip
            provider._active_span_processor.on_end(span)

    return f"00-{trace_id:032x}-{own.span_id:016x}-{flags:02x}", end


class JsonLines(SpanExporter):
    """Appends one JSON object a span to a file."""

    def __init__(self, path: Path, service: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._service = path.open("ab"), service

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._file.writelines(_line(self._row(span)) for span in spans)
        self._file.flush()
        return SpanExportResult.SUCCESS

    def _row(self, span: ReadableSpan) -> dict[str, object]:
        own = span.get_span_context() or trace.INVALID_SPAN_CONTEXT
        return {
            "trace_id": f"{own.trace_id:032x}", "span_id": f"{own.span_id:016x}",
            "parent_span_id": f"{span.parent.span_id:016x}" if span.parent else "", "name": span.name,
            "service": self._service, "kind": span.kind.name.lower(), "attributes": dict(span.attributes or {}),
            "start_ns": span.start_time, "end_ns": span.end_time, "status": span.status.status_code.name.lower(),
            "links": [f"{at.context.trace_id:032x}-{at.context.span_id:016x}" for at in span.links],
        }  # fmt: skip

    def shutdown(self) -> None:
        self._file.close()


def _line(row: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(row, str, orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # Half a surrogate pair, which the standard library writes all the same.
        return json.dumps(row, default=str).encode() + b"\n"


def start_tracing(service: str, settings: "ServiceSettings", *, workflows: bool = False) -> Any:
    """Begin to export; the process's provider, of which `shutdown` exports the rest.

    `workflows`: safe for replay (Temporal).
    """
    processors = SynchronousMultiSpanProcessor()
    folder = settings.data_dir / "traces"
    exporters: list[SpanExporter] = [JsonLines(folder / f"{service}-{os.getpid()}.jsonl", service)]
    if collector := settings.otlp_endpoint:
        exporters.append(OTLPSpanExporter(endpoint=collector, insecure=collector.startswith("http:")))
    for exporter in exporters:
        processors.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    names = {"service.name": f"forgerl-{service}", "service.instance.id": settings.instance}
    make: Any = TracerProvider
    if workflows:
        from temporalio.contrib.opentelemetry import create_tracer_provider as make
    provider = make(resource=Resource.create(names), active_span_processor=processors)
    # The SDK makes a new one at every call, and Temporal's interceptors ask at every span.
    provider.get_tracer = cache(provider.get_tracer)
    trace.set_tracer_provider(provider)
    return provider
