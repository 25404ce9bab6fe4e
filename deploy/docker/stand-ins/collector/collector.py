"""Stands in for an OpenTelemetry collector: OTLP over gRPC in, JSON lines and a line a batch out.

Takes `--config=FILE` as the real one does, and refuses whatever that file asks for beyond what it can do.
"""

import signal
import sys
from concurrent import futures
from pathlib import Path

import grpc
import yaml
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

_KNOWN = {
    "receivers": {"otlp"},
    "processors": {"batch"},
    "exporters": {"debug", "file"},
    "service": {"telemetry", "pipelines"},
}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def check(config: dict) -> None:
    """Ends the process with one line at the first name that isn't known, or that a pipeline doesn't find."""
    for part, names in config.items():
        for name in names:
            if name not in _KNOWN.get(part, ()):
                sys.exit(f"collector: {part}.{name}: given, but this stand-in knows {sorted(_KNOWN.get(part, ()))}")
    pipelines = config["service"]["pipelines"]
    if set(pipelines) != {"traces"}:
        sys.exit(f"collector: service.pipelines: given {sorted(pipelines)}; allowed traces")
    for part, names in pipelines["traces"].items():
        missing = [name for name in names if name not in config[part]]
        if missing:
            sys.exit(f"collector: service.pipelines.traces.{part}: {missing[0]} is not configured")


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    """Appends each request as one line, in OTLP's own JSON."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def Export(self, request, context):
        self._file.write(json_format.MessageToJson(request, indent=None) + "\n")
        self._file.flush()
        spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
        say(f"traces: {len(request.resource_spans)} resources, {spans} spans")
        return trace_service_pb2.ExportTraceServiceResponse()


def main() -> None:
    flag, _, path = sys.argv[1].partition("=")
    if flag != "--config" or len(sys.argv) != 2:
        sys.exit("usage: collector.py --config=FILE")
    config = yaml.safe_load(Path(path).read_text())
    check(config)
    # One writer: lines never interleave.
    server = grpc.server(futures.ThreadPoolExecutor(1))
    traces = Traces(Path(config["exporters"]["file"]["path"]))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(traces, server)
    endpoint = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    server.add_insecure_port(endpoint)
    server.start()
    say(f"collector: ready, OTLP over gRPC on {endpoint}")
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=2))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
