"""The tables in docs/ say what the code says: settings, run file, events, failure classes."""

import math
from importlib import import_module
from typing import Any

import pytest
from doc_pages import ROOT, rows
from forgerl.common.v1 import run_pb2
from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from google.protobuf.descriptor import FieldDescriptor

from services.cli.pool.tables import SCHEMAS
from services.contract.outcomes import FailureClass, treatment
from services.contract.run_spec import check, resolve
from services.gateway.intake import TOPICS as GATEWAY
from services.inference.entrypoints.consumer import TOPICS as INFERENCE
from services.inference.settings import EngineSettings, KvPoolSettings
from services.inference.settings import Settings as InferenceSettings
from services.kernel.catalogue import Catalogue
from services.kernel.settings import ServiceSettings
from services.reward.bootstrap import TOPICS as REWARD
from services.rollout.entrypoints.removals import TOPICS as ROLLOUT
from services.rollout.settings import RolloutSettings
from services.router.entrypoints.consumer import KV_TOPIC, POLICY_TOPIC, WORKER_TOPIC
from services.scheduler.entrypoints.consumer import TOPICS as SCHEDULER
from services.trainer.bootstrap import TOPICS as TRAINER

DOCS = ROOT / "docs"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": import_module("services.gateway.settings").Settings,
    "scheduler": import_module("services.scheduler.settings").Settings,
    "rollout": RolloutSettings,
    "router": import_module("services.router.settings").Settings,
    "inference": InferenceSettings,
    "engine": EngineSettings,
    "kv-pool": KvPoolSettings,
    "reward": import_module("services.reward.settings").Settings,
    "trainer": import_module("services.trainer.settings").Settings,
}
EVENTS = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)
READERS = {
    "gateway": GATEWAY,
    "scheduler": SCHEDULER,
    "rollout": ROLLOUT,
    "router": (POLICY_TOPIC, WORKER_TOPIC, KV_TOPIC),
    "inference": INFERENCE,
    "reward": REWARD,
    "trainer": TRAINER,
}


def variables_of(cls: type[ServiceSettings]) -> dict[str, str]:
    """Variable -> default as it stands in the docs, of a class's own fields."""
    shared = set(ServiceSettings.model_fields) if cls is not ServiceSettings else set()
    return {
        str(field.validation_alias or f"{cls.model_config.get('env_prefix', '')}{name}".upper()): shown(field)
        for name, field in cls.model_fields.items()
        if name not in shared
    }


def shown(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value == "":
        return "empty"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_each_process(name: str):
    found = {row[0]: row[1] for row in rows(DOCS / "operations.md", f"### {name}")}
    assert found == variables_of(SETTINGS[name])


def test_shared_settings():
    found = {row[0]: row[1] for row in rows(DOCS / "operations.md", "### All services")}
    assert found == variables_of(ServiceSettings)


def fields_of(descriptor: Any, place: str = "") -> dict[str, FieldDescriptor]:
    found: dict[str, FieldDescriptor] = {}
    for field in descriptor.fields:
        where = f"{place}{field.name}"
        if field.message_type is None:
            found[where] = field
        else:
            found |= fields_of(field.message_type, f"{where}[]." if field.is_repeated else f"{where}.")
    return found


def value_at(spec: Any, path: str) -> Any:
    *sections, name = path.replace("[]", "").split(".")
    for section in sections:
        spec = getattr(spec, section)
        spec = spec[0] if section == "domains" else spec
    return spec, name


def minimal() -> run_pb2.RunSpec:
    spec = run_pb2.RunSpec(model=run_pb2.ModelSpec(path="m"), end=run_pb2.EndSpec(steps=1))
    spec.domains.add(name="tool")
    return spec


def default_of(path: str, field: FieldDescriptor) -> str:
    section, name = value_at(resolve(minimal()), path)
    value = getattr(section, name)
    if path in ("name", "model.path", "domains[].name") or path.startswith("end."):
        return "none"
    if path == "domains[].environment":
        return "the domain's name"
    if field.enum_type is not None:
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        return field.enum_type.values_by_number[value].name.removeprefix(prefix).lower()
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def allowed_of(path: str, field: FieldDescriptor) -> str | None:
    """What `check` allows, as its own message says when a value is refused; None where it refuses none."""
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        tried: list[Any] = [math.nan]
    elif field.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64):
        tried = [0, 2**32 - 1]
    else:
        return None
    for value in tried:
        spec = minimal()
        section, name = value_at(spec, path)
        setattr(section, name, value)
        for problem in check(spec, ["tool"], ["tool_loop"]):
            where, _, rest = problem.partition(": given ")
            if where == path.replace("[]", "[0]"):
                return rest.partition("; allowed ")[2]
    return "any"


RUN_FIELDS = fields_of(run_pb2.RunSpec.DESCRIPTOR)


def test_run_file_lists_every_field_and_no_other():
    assert [row[0] for row in rows(DOCS / "run-file.md", "## Fields")] == list(RUN_FIELDS)


@pytest.mark.parametrize("path", RUN_FIELDS)
def test_run_file_defaults_and_bounds(path: str):
    row = next(row for row in rows(DOCS / "run-file.md", "## Fields") if row[0] == path)
    assert row[1] == default_of(path, RUN_FIELDS[path])
    allowed = allowed_of(path, RUN_FIELDS[path])
    if allowed is not None:
        assert row[2] == allowed


def test_event_catalogue():
    written = {
        (row[0], row[1], name.strip(" `"), row[3], row[4])
        for row in rows(DOCS / "events.md", "## Catalogue")
        for name in row[2].split(",")
    }
    expected = {
        (
            topic.name,
            topic.key,
            name.rpartition(".")[2],
            topic.noun.partition(".")[0],
            ", ".join(service for service, topics in READERS.items() if topic.name in topics),
        )
        for topic in Catalogue.from_modules(EVENTS).topics()
        for name in topic.type_names
    }
    assert written == expected


def test_failure_classes():
    found = {row[0]: row[2:5] for row in rows(DOCS / "failures.md", "## Classes")}
    expected = {}
    for failure_class in FailureClass:
        how = treatment(failure_class)
        paid = "by the verifier" if how.verified else "none" if how.performance is None else f"{how.performance:g}"
        expected[failure_class.value] = [paid, "yes" if how.trained else "no", "counts" if how.counts else "excluded"]
    assert found == expected


def test_pool_tables_have_the_columns_that_are_written() -> None:
    told = {row[0]: row[2].split(", ") for row in rows(DOCS / "data-pool.md", "# The data pool")}
    assert told == {name: list(schema.names) for name, schema in SCHEMAS.items()}
