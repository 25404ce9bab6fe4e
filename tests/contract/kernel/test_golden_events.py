"""Every published event, as it was once published, decodes for ever. `python test_golden_events.py` adds new ones."""

import importlib
import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from services.kernel.catalogue import Catalogue
from services.kernel.envelope import parse

KEPT = Path(__file__).with_name("golden_events.json")
NAMES = ("gateway", "inference", "reward", "rollout", "scheduler", "trainer")
CATALOGUE = Catalogue.from_modules([importlib.import_module(f"forgerl.events.v1.{name}_pb2") for name in NAMES])
TYPES = [name for topic in CATALOGUE.topics() for name in topic.type_names]


def fill(message: Message, depth: int = 0) -> Message:
    """Set every field, to values that depend on its number, so that a field that moves is noticed."""
    for field in message.DESCRIPTOR.fields:
        repeated = field.is_repeated
        if field.message_type and field.message_type.GetOptions().map_entry:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth < 4:
                target = getattr(message, field.name)
                fill(target.add() if repeated else target, depth + 1)
            continue
        value = value_of(field)
        getattr(message, field.name).append(value) if repeated else setattr(message, field.name, value)
    return message


def value_of(field: FieldDescriptor) -> object:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        return f"{field.name}-{field.number}"
    if field.type == kinds.TYPE_BYTES:
        return bytes([field.number, 0, 255])
    if field.type == kinds.TYPE_BOOL:
        return True
    if field.type == kinds.TYPE_ENUM:
        return field.enum_type.values[-1].number
    return field.number + (0.5 if field.type in (kinds.TYPE_DOUBLE, kinds.TYPE_FLOAT) else 0)


def golden() -> dict[str, dict[str, object]]:
    return json.loads(KEPT.read_text())


@pytest.mark.parametrize("name", TYPES)
def test_every_published_event_has_a_golden_record(name: str) -> None:
    assert name in golden(), f"run python {Path(__file__).name}"


@pytest.mark.parametrize("name", sorted(golden()))
def test_what_was_published_still_decodes(name: str) -> None:
    kept = golden()[name]
    message = parse(name, bytes.fromhex(str(kept["bytes"])))
    again = MessageToDict(message, preserving_proto_field_name=True)
    assert {field: again[field] for field in kept["fields"]} == kept["fields"]  # type: ignore[attr-defined]


if __name__ == "__main__":
    records = golden() if KEPT.exists() else {}
    for missing in [name for name in TYPES if name not in records]:
        filled = fill(type(parse(missing, b""))())
        fields = MessageToDict(filled, preserving_proto_field_name=True)
        records[missing] = {"fields": fields, "bytes": filled.SerializeToString(deterministic=True).hex()}
    KEPT.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
