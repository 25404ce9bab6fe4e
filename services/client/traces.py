"""An episode's trace as a tree of spans, from the files that the services of a local instance write.

Spans of other traces that link to it (the optimiser step that used it) are added at the end. Refuses to read from a
collector: with OTEL_EXPORTER_OTLP_ENDPOINT the same spans are there too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.client.places import Places
from services.kernel.errors import NotFound, Refused

# The gateway's first span of an episode; its attribute `subject` is the episode's id.
ROOT_SPAN = "episode"


@dataclass(slots=True)
class SpanNode:
    """One span. Times are seconds since the trace's first span; `linked`: of another trace that names this one."""

    span_id: str
    parent_span_id: str
    name: str
    service: str
    start_s: float
    duration_s: float
    status: str
    attributes: dict[str, Any]
    linked: bool = False
    children: list["SpanNode"] = field(default_factory=list)


def read_trace(places: Places, traceparent: str) -> list[SpanNode]:
    """Roots in order of time. Raises Refused when this machine has no files, NotFound when no span is in them."""
    folder = _folder(places)
    parts = traceparent.split("-")
    if len(parts) != 4:
        raise NotFound("the episode has no trace")
    rows = list(_rows(folder, parts[1]))
    if not rows:
        raise NotFound(f"no span of trace {parts[1]} in {folder} (yet: they are written with a delay)")
    return build_tree(rows, parts[1])


def find_trace(places: Places, episode_id: str) -> list[SpanNode]:
    """As `read_trace`, by the episode's id alone: nothing has to be up. Empty when no file has the episode's root.

    Raises Refused when this machine has no files.
    """
    folder = _folder(places)
    # A submission that was lost and repeated left a root of its own: the trace in which things happened is meant.
    traces = {
        row["trace_id"]
        for row in _rows(folder, episode_id)
        if row["name"] == ROOT_SPAN and row["attributes"].get("subject") == episode_id
    }
    found = sorted(((trace_id, list(_rows(folder, trace_id))) for trace_id in traces), key=lambda pair: len(pair[1]))
    return build_tree(found[-1][1], found[-1][0]) if found else []


def _folder(places: Places) -> Path:
    kept = places.data_dir or places.folder
    if kept is None or not (kept / "traces").is_dir():
        raise Refused("traces are kept by the machine that runs the stack; this one has none")
    return kept / "traces"


def _rows(folder: Path, text: str) -> Iterator[dict[str, Any]]:
    """Spans whose line has `text` anywhere: the trace's own, and those that link to it."""
    wanted = text.encode()
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                # A line that a killed process left half written ends the file or is not JSON.
                if wanted in line and line.endswith(b"\n"):
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue


def build_tree(rows: list[dict[str, Any]], trace_id: str) -> list[SpanNode]:
    """Rows as telemetry writes them. A span whose parent isn't there is a root."""
    first_ns = min((row["start_ns"] for row in rows if row["trace_id"] == trace_id), default=rows[0]["start_ns"])
    nodes = {row["span_id"]: _node(row, trace_id, first_ns) for row in rows}
    roots: list[SpanNode] = []
    for node in sorted(nodes.values(), key=lambda node: (node.linked, node.start_s)):
        parent = nodes.get(node.parent_span_id)
        (parent.children if parent and parent is not node else roots).append(node)
    return roots


def _node(row: dict[str, Any], trace_id: str, first_ns: int) -> SpanNode:
    return SpanNode(
        span_id=row["span_id"],
        parent_span_id=row["parent_span_id"],
        name=row["name"],
        service=row["service"],
        start_s=(row["start_ns"] - first_ns) / 1e9,
        duration_s=(row["end_ns"] - row["start_ns"]) / 1e9,
        status=row["status"],
        attributes=row["attributes"],
        linked=row["trace_id"] != trace_id,
    )
