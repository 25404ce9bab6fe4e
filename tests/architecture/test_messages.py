"""Events, their topics and their owners; generated code (DESIGN 3)."""

import filecmp
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from source import ROOT, SERVICES, sources

from services.kernel.catalogue import Catalogue

IRREGULAR = {"Begun", "Sent", "Lost", "Found", "Made", "Taken", "Kept", "Left", "Held", "Written", "Read"}


def modules() -> list[ModuleType]:
    files = sorted((ROOT / "proto" / "forgerl" / "events" / "v1").glob("*.proto"))
    return [importlib.import_module(f"forgerl.events.v1.{file.stem}_pb2") for file in files]


def events() -> dict[str, str]:
    """Service that owns each published event, by the file that declares it."""
    owners: dict[str, str] = {}
    for module in modules():
        owner = Path(module.DESCRIPTOR.name).stem
        for topic in Catalogue.from_modules([module]).topics():
            owners |= {name.rpartition(".")[2]: owner for name in topic.type_names}
    return owners


def test_every_topic_belongs_to_the_service_that_declares_it() -> None:
    seen: dict[str, str] = {}
    for module in modules():
        owner = Path(module.DESCRIPTOR.name).stem
        assert owner in SERVICES, f"{module.DESCRIPTOR.name} is not named after a service"
        for topic in Catalogue.from_modules([module]).topics():
            assert re.fullmatch(rf"forgerl\.{owner}\.[a-z_]+\.v\d+", topic.name), topic.name
            assert seen.setdefault(topic.name, owner) == owner
    Catalogue.from_modules(modules())


def test_only_its_owner_makes_an_event() -> None:
    owners = events()
    wrong = [
        f"{source.name}:{call.lineno}: {name}"
        for source in sources("services")
        for call, name in source.calls()
        if "_pb2." in name and owners.get(name.rpartition(".")[2], source.package) != source.package
    ]
    assert not wrong, "\n".join(wrong)


def test_events_are_named_in_the_past_tense() -> None:
    last_words = {name: re.findall(r"[A-Z][a-z0-9]*", name)[-1] for name in events()}
    wrong = [name for name, word in last_words.items() if not word.endswith("ed") and word not in IRREGULAR]
    assert not wrong, wrong


@pytest.mark.skipif(
    not shutil.which("protoc-gen-mypy", path=str(Path(sys.executable).parent)), reason="no code generator"
)
def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    protos = [str(file.relative_to(ROOT / "proto")) for file in sorted((ROOT / "proto" / "forgerl").rglob("*.proto"))]
    outs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")]
    search = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outs, *protos]
    made = subprocess.run(command, cwd=ROOT / "proto", env=search, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    kept = ROOT / "proto" / "gen"
    fresh = {file.relative_to(tmp_path) for file in tmp_path.rglob("*_pb2*")}
    committed = {file.relative_to(kept) for file in kept.rglob("*_pb2*") if "__pycache__" not in file.parts}
    different = [
        str(name) for name in fresh & committed if not filecmp.cmp(tmp_path / name, kept / name, shallow=False)
    ]
    assert not different and fresh == committed, f"run `make proto`: {different or sorted(map(str, fresh ^ committed))}"
