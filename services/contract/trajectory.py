"""A sealed trajectory: one row a node of the message tree, parents before children, and its Arrow IPC bytes.

It refuses to repair: rows that contradict each other raise `MalformedTrajectory` on encoding and on decoding.
A turn's prompt is the concatenation of its ancestors' ids; the template's filler between turns belongs to the context
node that follows.
"""

# pyarrow ships no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false, reportMissingTypeStubs=false

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

MEDIA_TYPE = "application/vnd.apache.arrow.file"
"""The buffers inside are zstd-compressed already."""

FORMAT = "1"
NO_PARENT = -1
NO_TURN = -1

Kind = Literal["sampled", "context"]


class MalformedTrajectory(ValueError):
    """Rows that contradict each other, or bytes that aren't a trajectory; the message names the node and the field."""


@dataclass(frozen=True, slots=True)
class Span:
    """Ids [start, end) of a sampled node were sampled from this policy."""

    start: int
    end: int
    policy_step: int
    policy_digest: str


@dataclass(frozen=True, slots=True)
class Node:
    """One message: the ids it added; for a sampled one also its log-probabilities, spans and sampling transform.

    `turn` counts sampled nodes in the order in which they were sampled; `infra` marks turns of a lost attempt, which
    are kept but never trained. Ids and log-probabilities are tuples, or views of columns (see `view`).
    """

    node_id: int
    parent_id: int
    kind: Kind
    turn: int
    role: str
    message_json: str
    token_ids: Sequence[int]
    logprobs: Sequence[float] = ()
    spans: tuple[Span, ...] = ()
    temperature: float = 0.0
    top_p: float = 0.0
    finish_reason: str = ""
    infra: bool = False
    call_id: str = ""

    @property
    def sampled(self) -> bool:
        """Whether a policy wrote this message."""
        return self.kind == "sampled"

    @property
    def trainable(self) -> bool:
        """Whether its ids may be trained at all."""
        return self.kind == "sampled" and not self.infra


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All nodes of one episode, parents before children; empty when no call was ever recorded."""

    episode_id: str
    run_id: str
    nodes: tuple[Node, ...]


_SPAN = pa.struct(
    [("start", pa.int32()), ("end", pa.int32()), ("policy_step", pa.int32()), ("policy_digest", pa.string())]
)
_NUMBERS = {"token_ids": np.uint32, "logprobs": np.float32}
_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("node_id", pa.int32()),
    ("parent_id", pa.int32()),
    ("kind", pa.string()),
    ("turn", pa.int32()),
    ("role", pa.string()),
    ("message_json", pa.string()),
    ("token_ids", pa.list_(pa.uint32())),
    ("logprobs", pa.list_(pa.float32())),
    ("spans", pa.list_(_SPAN)),
    ("temperature", pa.float32()),
    ("top_p", pa.float32()),
    ("finish_reason", pa.string()),
    ("infra", pa.bool_()),
    ("call_id", pa.string()),
)
_SCHEMA = pa.schema(list(_COLUMNS))
_NUMERIC: dict[str, Any] = {"logprobs": (), "spans": (), "temperature": 0.0, "top_p": 0.0, "call_id": ""}
"""Columns that say how a message was sampled, and what stands in a node where they were not read."""


def encode(trajectory: Trajectory) -> bytes:
    """The trajectory as an Arrow IPC file. Raises MalformedTrajectory."""
    validate(trajectory)
    metadata = {"episode_id": trajectory.episode_id, "run_id": trajectory.run_id, "format": FORMAT}
    schema = pa.schema(list(_COLUMNS), metadata=metadata)
    try:
        columns = [_column(trajectory.nodes, name, kind) for name, kind in _COLUMNS]
    except (OverflowError, TypeError, ValueError) as error:
        raise MalformedTrajectory(f"a value doesn't fit its column: {error}") from error
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> Trajectory:
    """The trajectory in the bytes. Raises MalformedTrajectory."""
    return _read(data, _tuples)


def view(data: bytes) -> Trajectory:
    """The same, with ids and log-probabilities as views (memoryview) of the columns: equal to others of their kind.

    It refuses what `decode` refuses, at a quarter of the cost.
    """
    return _read(data, _views)


def view_messages(data: bytes) -> Trajectory:
    """A view without what says how a message was sampled: no log-probabilities, spans, temperature, top_p, call ids.

    It refuses contradictions of what it reads only.
    """
    return _read(data, _views, _NUMERIC)


def _read(data: bytes, numbers: Callable[[Any, Any], list[Any]], left_out: Collection[str] = ()) -> Trajectory:
    try:
        # A pool of threads costs more than it saves on files as small as these.
        options = ipc.IpcReadOptions(use_threads=False)
        reader = ipc.open_file(data, options=options)
        schema = reader.schema
        if left_out:
            fields = [at for at, name in enumerate(schema.names) if name not in left_out]
            options = ipc.IpcReadOptions(use_threads=False, included_fields=fields)
            reader = ipc.open_file(data, options=options)
        table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise MalformedTrajectory(f"not an Arrow file: {error}") from error
    metadata = _metadata(schema)
    cells = [
        [_NUMERIC[name]] * table.num_rows if name in left_out else _cells(table.column(name), name, numbers)
        for name, _ in _COLUMNS
    ]
    nodes = tuple(Node(*row) for row in zip(*cells, strict=True))
    trajectory = Trajectory(metadata.get("episode_id", ""), metadata.get("run_id", ""), nodes)
    validate(trajectory, sampling=not left_out)
    return trajectory


def _metadata(schema: Any) -> dict[str, str]:
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    if metadata.get("format") != FORMAT:
        raise MalformedTrajectory(f"format: given {metadata.get('format')!r}; allowed {FORMAT!r}")
    # As `encode` writes it, which is quick to see; others may have more columns, in another order.
    if not schema.equals(_SCHEMA):
        _check_columns(schema)
    return metadata


def _check_columns(schema: Any) -> None:
    missing = [name for name, _ in _COLUMNS if name not in schema.names]
    if missing:
        raise MalformedTrajectory(f"columns: missing {', '.join(missing)}")
    for name, kind in _COLUMNS:
        given = schema.field(name).type
        if given != kind:
            raise MalformedTrajectory(f"column {name}: given {given}; allowed {kind}")


def branches(trajectory: Trajectory) -> list[list[int]]:
    """Every path of node ids from a root to a leaf, in the order of the leaves."""
    parents = {node.node_id: node.parent_id for node in trajectory.nodes}
    inner = set(parents.values())
    return [_path(parents, node.node_id) for node in trajectory.nodes if node.node_id not in inner]


def training_branches(trajectory: Trajectory) -> list[list[int]]:
    """Paths that end in a trainable node with no trainable node below: context after the last sample is cut off."""
    parents = {node.node_id: node.parent_id for node in trajectory.nodes}
    trainable = {node.node_id for node in trajectory.nodes if node.trainable}
    above: set[int] = set()
    for node_id in trainable:
        above.update(_path(parents, node_id)[:-1])
    return [_path(parents, node.node_id) for node in trajectory.nodes if node.node_id in trainable - above]


def tree_tokens(trajectory: Trajectory) -> int:
    """Distinct tokens of the tree."""
    return sum(len(node.token_ids) for node in trajectory.nodes)


def branch_tokens(trajectory: Trajectory) -> int:
    """Tokens of all branches laid out one by one."""
    sizes = {node.node_id: len(node.token_ids) for node in trajectory.nodes}
    return sum(sizes[node_id] for branch in branches(trajectory) for node_id in branch)


def sampled_nodes(trajectory: Trajectory) -> list[Node]:
    """Sampled nodes in the order in which they were sampled."""
    return [node for node in trajectory.nodes if node.sampled]


def validate(trajectory: Trajectory, *, sampling: bool = True) -> None:
    """Raise MalformedTrajectory at the first contradiction; without `sampling`, of log-probabilities and spans none."""
    seen: set[int] = {NO_PARENT}
    turn = 0
    for node in trajectory.nodes:
        if node.node_id in seen or node.node_id < 0:
            raise MalformedTrajectory(f"node {node.node_id}: node_id is negative or used twice")
        if node.parent_id not in seen:
            raise MalformedTrajectory(f"node {node.node_id}: parent_id {node.parent_id} does not come first")
        seen.add(node.node_id)
        if node.sampled:
            if node.turn != turn:
                raise MalformedTrajectory(
                    f"node {node.node_id}: turn: given {node.turn}; allowed {turn} (order of sampling)"
                )
            turn += 1
            if sampling:
                _validate_sampled(node)
        elif node.kind != "context":
            raise MalformedTrajectory(f"node {node.node_id}: kind: given {node.kind!r}; allowed sampled, context")
        elif node.turn != NO_TURN or node.logprobs or node.spans:
            raise MalformedTrajectory(f"node {node.node_id}: context has no turn, logprobs or spans")


def _validate_sampled(node: Node) -> None:
    where = f"node {node.node_id}"
    if len(node.logprobs) != len(node.token_ids):
        raise MalformedTrajectory(f"{where}: {len(node.logprobs)} logprobs for {len(node.token_ids)} ids")
    end = 0
    for span in node.spans:
        if span.start != end or span.end <= span.start:
            raise MalformedTrajectory(f"{where}: spans: [{span.start}, {span.end}) does not follow {end}")
        end = span.end
    if end != len(node.token_ids):
        raise MalformedTrajectory(f"{where}: spans end at {end} of {len(node.token_ids)} ids")


def _path(parents: dict[int, int], node_id: int) -> list[int]:
    path: list[int] = []
    while node_id != NO_PARENT:
        path.append(node_id)
        node_id = parents[node_id]
    return path[::-1]


# Column by column, since a Python object a token and a cell would cost twenty times as much.


def _column(nodes: tuple[Node, ...], name: str, kind: Any) -> Any:
    if name == "spans":
        spans = [
            [(span.start, span.end, span.policy_step, span.policy_digest) for span in node.spans] for node in nodes
        ]
        return pa.array([[dict(zip(_SPAN.names, span, strict=True)) for span in some] for some in spans], type=kind)
    if name in _NUMBERS:
        parts = [getattr(node, name) for node in nodes]
        offsets = np.zeros(len(parts) + 1, np.int32)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        values = np.fromiter(chain.from_iterable(parts), _NUMBERS[name], int(offsets[-1]))
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    return pa.array([getattr(node, name) for node in nodes], type=kind)


def _cells(column: Any, name: str, numbers: Callable[[Any, Any], list[Any]]) -> list[Any]:
    """A column's values as a node holds them; `numbers`: cells of a column of lists, from its offsets and values."""
    flat = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], column.type)
    if flat.null_count:
        raise MalformedTrajectory(f"column {name}: {flat.null_count} values are missing")
    if name != "spans" and name not in _NUMBERS:
        return flat.to_pylist()
    values = flat.values.flatten() if name == "spans" else [flat.values]
    if missing := sum(part.null_count for part in values):
        raise MalformedTrajectory(f"column {name}: {missing} values are missing")
    if name == "spans":
        spans = [Span(*row) for row in zip(*(part.to_pylist() for part in values), strict=True)]
        return [tuple(spans[start:end]) for start, end in pairwise(flat.offsets.to_pylist())]
    return numbers(flat.offsets, values[0])


def _tuples(offsets: Any, values: Any) -> list[Any]:
    numbers = values.to_numpy(zero_copy_only=False).tolist()
    return [tuple(numbers[start:end]) for start, end in pairwise(offsets.to_pylist())]


def _views(offsets: Any, values: Any) -> list[Any]:
    numbers = memoryview(values.to_numpy())
    return [numbers[start:end] for start, end in pairwise(offsets.to_pylist())]
