"""Recorded episodes as lines of JSON, one an episode: how they are exported, and taken in from elsewhere.

    {"group": "g1", "domain": "tool", "task": {"environment", "task_id", "payload"}, "outcome": "completed",
     "answer": "42", "agent_wall_s": 1.5, "nodes": [{"parent": -1, "message": {"role", "content"}, "token_ids": [1, 2]},
     {"parent": 0, "message": {…}, "token_ids": [3], "logprobs": [-0.5], "temperature": 1.0, "top_p": 1.0}]}

A node with `logprobs` was sampled; an assistant's message that wasn't says `"sampled": false`. `spans` ([start, end,
step, digest]) say by which policy. `payload` is text; bytes that are none go under `payload_base64`. It refuses unknown
keys and missing values, by name.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forgerl.common.v1 import task_pb2

from services.cli.errors import UsageError
from services.contract.trajectory import NO_TURN, MalformedTrajectory, Node, Span, Trajectory, validate

_LINE_KEYS = {"group", "domain", "task", "outcome", "answer", "agent_wall_s", "nodes", "episode_id", "run_id"}
_TASK_KEYS = {"environment", "task_id", "payload", "payload_base64"}
_NODE_KEYS = {
    *("parent", "message", "token_ids", "sampled", "logprobs", "temperature", "top_p", "finish_reason", "spans"),
    *("infra", "call_id"),
}
_OUTCOMES = {
    "completed": task_pb2.OUTCOME_COMPLETED,
    "agent_timeout": task_pb2.OUTCOME_AGENT_TIMEOUT,
    "context_overflow": task_pb2.OUTCOME_CONTEXT_OVERFLOW,
}


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """One episode of a file. `trajectory` bears no ids yet."""

    group: str
    domain: str
    task: task_pb2.Task
    outcome: task_pb2.Outcome
    answer: str
    agent_wall_s: float
    trajectory: Trajectory


def parse_line(text: str, where: str) -> RecordedLine:
    """The episode of a line; `where` stands before what is wrong with it. Raises UsageError."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    _keys(line, _LINE_KEYS, where)
    outcome = line.get("outcome", "completed")
    if outcome not in _OUTCOMES:
        raise UsageError(f"{where}: outcome: given {outcome!r}; allowed {', '.join(_OUTCOMES)}")
    task = _wanted(line, "task", dict, where)
    _keys(task, _TASK_KEYS, f"{where}: task")
    nodes: list[Node] = []
    turns = 0
    for index, given in enumerate(_wanted(line, "nodes", list, where)):
        node = _node(index, given, turns, f"{where}: nodes[{index}]")
        turns += node.sampled
        nodes.append(node)
    trajectory = Trajectory("", "", tuple(nodes))
    try:
        validate(trajectory)
    except MalformedTrajectory as error:
        raise UsageError(f"{where}: {error}") from error
    if not turns:
        raise UsageError(f"{where}: nodes: given none that was sampled; allowed one or more with logprobs")
    return RecordedLine(
        group=_wanted(line, "group", str, where),
        domain=_wanted(line, "domain", str, where),
        task=task_pb2.Task(
            environment=_wanted(task, "environment", str, f"{where}: task"),
            task_id=_wanted(task, "task_id", str, f"{where}: task"),
            split=task_pb2.SPLIT_TRAIN,
            payload=_payload(task, f"{where}: task"),
        ),
        outcome=_OUTCOMES[outcome],
        answer=_wanted(line, "answer", str, where),
        agent_wall_s=float(line.get("agent_wall_s") or 0.0),
        trajectory=trajectory,
    )


def to_line(recorded: RecordedLine, names: Mapping[str, str]) -> str:
    """The line of an episode; `names` (episode_id, run_id) are kept for people and ignored when it is taken in."""
    payload: dict[str, str] = {}
    try:
        payload["payload"] = recorded.task.payload.decode()
    except UnicodeDecodeError:
        payload["payload_base64"] = base64.b64encode(recorded.task.payload).decode()
    task = {"environment": recorded.task.environment, "task_id": recorded.task.task_id, **payload}
    line = {
        **names,
        "group": recorded.group,
        "domain": recorded.domain,
        "task": task,
        "outcome": next(name for name, number in _OUTCOMES.items() if number == recorded.outcome),
        "answer": recorded.answer,
        "agent_wall_s": recorded.agent_wall_s,
        "nodes": _node_objects(recorded.trajectory),
    }
    return json.dumps(line, ensure_ascii=False)


def _node_objects(trajectory: Trajectory) -> list[dict[str, Any]]:
    places = {node.node_id: place for place, node in enumerate(trajectory.nodes)}
    objects: list[dict[str, Any]] = []
    for node in trajectory.nodes:
        one: dict[str, Any] = {
            "parent": places.get(node.parent_id, -1),
            "message": json.loads(node.message_json or "{}"),
            "token_ids": list(node.token_ids),
            "sampled": node.sampled,
        }
        if node.sampled:
            one |= {"logprobs": list(node.logprobs), "temperature": node.temperature, "top_p": node.top_p}
            one |= {"finish_reason": node.finish_reason, "infra": node.infra, "call_id": node.call_id}
            one["spans"] = [[span.start, span.end, span.policy_step, span.policy_digest] for span in node.spans]
        objects.append(one)
    return objects


def _node(index: int, given: Any, turns: int, where: str) -> Node:
    _keys(given, _NODE_KEYS, where)
    message = _wanted(given, "message", dict, where)
    ids = tuple(_wanted(given, "token_ids", list, where))
    if not all(isinstance(one, int) and 0 <= one < 2**31 for one in ids):
        raise UsageError(f"{where}.token_ids: given one that is no token id; allowed integers, 0 or more")
    common = (index, int(given.get("parent", index - 1)))
    role, text = str(message.get("role", "")), json.dumps(message, ensure_ascii=False)
    if not (given.get("sampled") or "logprobs" in given):
        # An agent may put words into the model's mouth; then it has to say so.
        if role == "assistant" and "sampled" not in given:
            raise UsageError(f"{where}.logprobs: given none; allowed one for each id of what a model sampled")
        return Node(*common, "context", NO_TURN, role, text, ids)
    if "logprobs" not in given:
        raise UsageError(f"{where}.logprobs: given none; allowed one for each id of what a model sampled")
    logprobs = given["logprobs"]
    if not isinstance(logprobs, list) or not all(isinstance(value, int | float) for value in logprobs):
        raise UsageError(f"{where}.logprobs: given something else; allowed a list of numbers")
    spans = tuple(Span(int(s[0]), int(s[1]), int(s[2]), str(s[3])) for s in given.get("spans") or ())
    return Node(
        *common,
        "sampled",
        turns,
        role,
        text,
        ids,
        tuple(float(value) for value in logprobs),
        spans or (Span(0, len(ids), -1, ""),),
        float(given.get("temperature", 1.0)),
        float(given.get("top_p", 1.0)),
        str(given.get("finish_reason", "stop")),
        bool(given.get("infra", False)),
        str(given.get("call_id", "")),
    )


def _payload(task: Mapping[str, Any], where: str) -> bytes:
    if "payload_base64" not in task:
        return _wanted(task, "payload", str, where).encode()
    try:
        return base64.b64decode(str(task["payload_base64"]), validate=True)
    except ValueError as error:
        raise UsageError(f"{where}.payload_base64: {error}") from error


def _keys(given: Any, allowed: set[str], where: str) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{where}: given {type(given).__name__}; allowed an object")
    unknown = sorted(set(given) - allowed)
    if unknown:
        raise UsageError(f"{where}: {unknown[0]}: unknown; allowed {', '.join(sorted(allowed))}")


def _wanted(given: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in given:
        raise UsageError(f"{where}: {name}: missing")
    if not isinstance(given[name], kind):
        raise UsageError(f"{where}: {name}: given {type(given[name]).__name__}; allowed {kind.__name__}")
    return given[name]
