"""Traces: spans to a collector where one is named, and always as JSON lines under the data folder.

Refuses to put spans on the path of the work: they are exported in batches, from a thread, and lost with a kill.
"""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from services.kernel.settings import ServiceSettings

_EXPORT_EVERY_MS = 500


def current_traceparent() -> str:
    """W3C traceparent of the span in force; empty outside any."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def parent_context(traceparent: str) -> context.Context:
    """The context in which new spans are children of `traceparent`; an empty one: roots."""
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context.Context())


def link(traceparent: str) -> trace.Link | None:
    """A span link to another trace; None when `traceparent` is empty or malformed."""
    span = trace.get_current_span(parent_context(traceparent)).get_span_context()
    return trace.Link(span) if span.is_valid else None


@contextmanager
def use_parent(traceparent: str) -> Generator[None]:
    """Spans started inside become children of `traceparent`."""
    token = context.attach(parent_context(traceparent))
    try:
        yield
    finally:
        context.detach(token)


class JsonLines(SpanExporter):
    """Appends one JSON object a span to a file."""

    def __init__(self, path: Path, service: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._service = service

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._file.writelines(json.dumps(self._row(span), default=str) + "\n" for span in spans)
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


class Telemetry:
    """One process's tracing."""

    def __init__(self, provider: Any, service: str) -> None:
        self.provider = provider
        self.tracer = trace.get_tracer(f"forgerl.{service}", tracer_provider=provider)

    @classmethod
    def start(cls, service: str, settings: "ServiceSettings", *, workflows: bool = False) -> "Telemetry":
        """Begin to export, and become the process's global provider. `workflows`: safe for replay (Temporal)."""
        processors = SynchronousMultiSpanProcessor()
        file = settings.data_dir / "traces" / f"{service}-{os.getpid()}.jsonl"
        exporters: list[SpanExporter] = [JsonLines(file, service)]
        if collector := settings.otlp_endpoint:
            exporters.append(OTLPSpanExporter(endpoint=collector, insecure=collector.startswith("http:")))
        for exporter in exporters:
            processors.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_EXPORT_EVERY_MS))
        resource = Resource.create({"service.name": f"forgerl-{service}", "service.instance.id": settings.instance})
        make: Any = TracerProvider
        if workflows:
            from temporalio.contrib.opentelemetry import create_tracer_provider as make
        provider = make(resource=resource, active_span_processor=processors)
        trace.set_tracer_provider(provider)
        return cls(provider, service)

    def stop(self) -> None:
        """Export what is left."""
        self.provider.shutdown()
