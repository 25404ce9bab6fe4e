"""Packs a queue's entry into its record and back. Fields are matched by name; refuses a record it does not know."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from forgerl.scheduler.v1 import queue_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from services.kernel.errors import Permanent
from services.scheduler.domain import decisions, facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.ports import Entry

_FACTS: dict[str, type[Any]] = {
    "run_ended": facts.RunEnded,
    "run_reopened": facts.RunReopened,
    "run_removed": facts.RunRemoved,
    "submitted": facts.Submitted,
    "cancelled": facts.Cancelled,
    "sealed": facts.Sealed,
    "started": facts.Started,
    "finished": facts.Finished,
    "failed": facts.Failed,
    "scored": facts.Scored,
    "scoring_failed": facts.ScoringFailed,
    "step_done": facts.StepDone,
    "step_failed": facts.StepFailed,
    "policy": facts.PolicyPublished,
    "fleet": facts.FleetShared,
    "pruned": facts.TrajectoriesPruned,
    "pruning_requested": facts.PruningRequested,
    "tick": facts.Ticked,
}
_DECISIONS: dict[str, type[Any]] = {
    "item_admitted": decisions.AdmitItem,
    "evaluation_admitted": decisions.AdmitEvaluation,
    "member_revoked": decisions.Revoke,
    "item_taken": decisions.TakeItem,
    "item_dropped": decisions.DropItem,
    "batch_closed": decisions.CloseBatch,
    "window_set": decisions.SetWindow,
    "episodes_pruned": decisions.PruneEpisodes,
}
_FACT_FIELDS = {kind: name for name, kind in _FACTS.items()}
_DECISION_FIELDS = {kind: name for name, kind in _DECISIONS.items()}


def to_record(entry: Entry) -> queue_pb2.QueueAdvanced:
    """The record of an entry."""
    taken = entry.taken
    record = queue_pb2.QueueAdvanced(
        event_id=taken.event_id,
        occurred_at_s=taken.occurred_at_s,
        taken_at_s=taken.taken_at_s,
        writer=entry.writer,
    )
    if isinstance(taken.fact, facts.RunOpened):
        _fill_config(record.run_opened, taken.fact.config)
    else:
        _fill(getattr(record, _FACT_FIELDS[type(taken.fact)]), taken.fact)
    for decision in entry.decisions:
        _fill(getattr(record.decisions.add(), _DECISION_FIELDS[type(decision)]), decision)
    return record


def from_record(record: queue_pb2.QueueAdvanced) -> Entry:
    """The entry of a record. Raises Permanent when it holds no fact that is known."""
    name = record.WhichOneof("fact")
    if name == "run_opened":
        fact: facts.Fact = facts.RunOpened(_read_config(record.run_opened))
    elif name in _FACTS:
        fact = _read(_FACTS[name], getattr(record, name))
    else:
        raise Permanent(f"queue record of {record.event_id or 'a tick'} holds no fact that is known")
    decided: list[decisions.Decision] = []
    for decision in record.decisions:
        kind = decision.WhichOneof("kind")
        if kind is None:
            raise Permanent(f"queue record of {record.event_id or 'a tick'} holds an unknown decision")
        decided.append(_read(_DECISIONS[kind], getattr(decision, kind)))
    taken = facts.Input(record.taken_at_s, fact, record.event_id, record.occurred_at_s)
    return Entry(taken, tuple(decided), record.writer)


def _fill(message: Any, values: Any) -> None:
    message.SetInParent()
    for field in fields(values):
        value = getattr(values, field.name)
        if isinstance(value, tuple):
            _fill_parts(getattr(message, field.name), value)
        elif value is not None:
            setattr(message, field.name, value)


def _fill_parts(repeated: Any, parts: tuple[Any, ...]) -> None:
    for part in parts:
        if isinstance(part, str):
            repeated.append(part)
        else:
            _fill(repeated.add(), part)


def _read(kind: type[Any], message: Any) -> Any:
    values: list[Any] = []
    for name, read in _plan(kind, message.DESCRIPTOR):
        values.append(getattr(message, name) if read is None else read(message, name))
    return kind(*values)


@cache
def _plan(kind: type[Any], described: Descriptor) -> tuple[tuple[str, Callable[[Any, str], Any] | None], ...]:
    """How each field of a kind is read, None being plainly: worked out once, since a replay reads millions."""
    known = described.fields_by_name
    return tuple((field.name, _reader(known[field.name])) for field in fields(kind))


def _reader(described: FieldDescriptor) -> Callable[[Any, str], Any] | None:
    if described.message_type is not None:
        return _read_parts
    if described.is_repeated:
        return _read_texts
    return _read_optional if described.has_presence else None


def _read_parts(message: Any, name: str) -> Any:
    return tuple(_read(facts.TrainedEpisode, part) for part in getattr(message, name))


def _read_texts(message: Any, name: str) -> Any:
    return tuple(getattr(message, name))


def _read_optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


_NUMBERS = tuple(field.name for field in fields(RunConfig) if field.name != "domains")


def _fill_config(message: queue_pb2.RunOpenedFact, config: RunConfig) -> None:
    message.SetInParent()
    for name in _NUMBERS:
        setattr(message, name, getattr(config, name))
    for name, weight in config.domains:
        message.domains.add(name=name, weight=weight)


def _read_config(message: queue_pb2.RunOpenedFact) -> RunConfig:
    numbers = {name: getattr(message, name) for name in _NUMBERS}
    # Records from before there were modes and shares.
    numbers["mode"] = numbers["mode"] or "rolling"
    numbers["fleet_weight"] = numbers["fleet_weight"] or 1.0
    return RunConfig(domains=tuple((domain.name, domain.weight) for domain in message.domains), **numbers)
