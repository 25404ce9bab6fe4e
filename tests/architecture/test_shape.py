"""Sizes, names, rooms and habits (CONVENTIONS, DESIGN 14)."""

import ast
import re
import subprocess

import pytest
from source import ROOT, SERVICES, Source, dotted, sources

WRITTEN = ("services", "tests", "loadtests", "deploy", "examples")
ROOMS = (
    "__init__.py",
    "__main__.py",
    "settings.py",
    "bootstrap.py",
    "ports.py",
    "application.py",
    "domain",
    "entrypoints",
    "adapters",
)
BAD_NAMES = {"helper", "helpers", "util", "utils", "manager", "managers", "common", "misc"}
# Programs that run inside a sandbox, where there is no kernel to wait for them.
WITHOUT_KERNEL = ("services/rollout/inside/",)
# What may stand at module level although it is called: it makes types and constants, not things with a life.
MAKES_CONSTANTS = {
    "TypeVar",
    "ParamSpec",
    "NewType",
    "Path",
    "PurePosixPath",
    "MappingProxyType",
    "Fraction",
    "Decimal",
    "SettingsConfigDict",
}


def test_no_file_is_longer_than_400_lines() -> None:
    long = [f"{source.name}: {lines}" for source in sources(*WRITTEN) if (lines := len(source.text.splitlines())) > 400]
    assert not long, "\n".join(long)


def test_functions_have_at_most_40_lines_and_5_parameters() -> None:
    wrong: list[str] = []
    for source in sources("services"):
        for function in source.functions():
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            given = function.args
            names = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            count = sum(name.arg not in {"self", "cls"} for name in names)
            if lines > 40 or count > 5:
                wrong.append(f"{source.name}:{function.lineno} {function.name}: {lines} lines, {count} parameters")
    assert not wrong, "\n".join(wrong)


def test_files_are_named_after_what_is_in_them() -> None:
    bad = [source.name for source in sources(*WRITTEN) if BAD_NAMES & set(re.split(r"[_.]", source.path.stem))]
    assert not bad, "\n".join(bad)


def test_every_module_says_what_it_is_for() -> None:
    spoken = (source for source in sources("services") if source.text.strip())
    silent = [source.name for source in spoken if not ast.get_docstring(source.tree)]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_rooms(service: str) -> None:
    missing = [room for room in ROOMS if not (ROOT / "services" / service / room).exists()]
    assert not missing, f"services/{service} lacks {missing}"
    chart = Source(ROOT / "services" / service / "__init__.py")
    assert len(chart.text.splitlines()) <= 20, f"{chart.name} is a map of at most 20 lines"


def frozen_classes() -> set[str]:
    """Names of frozen dataclasses: a constant of such a class is a value, not a thing with a life."""
    classes = (n for source in sources("services") for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef))
    return {c.name for c in classes if any("frozen=True" in ast.unparse(item) for item in c.decorator_list)}


def test_modules_hold_no_instances() -> None:
    wrong: list[str] = []
    values = MAKES_CONSTANTS | frozen_classes()
    for source in sources("services"):
        for node in source.tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if not isinstance(value, ast.Call):
                continue
            called = dotted(value.func).rpartition(".")[2]
            instance = called[:1].isupper() and called not in values
            if instance or called in {"get_logger", "getLogger", "get_tracer", "get_meter"}:
                wrong.append(f"{source.name}:{node.lineno}: {called}(…)")
    assert not wrong, "\n".join(wrong)


def test_nothing_sleeps_outside_the_kernel() -> None:
    wrong = [
        f"{source.name}:{call.lineno}"
        for source in sources("services")
        if source.package != "kernel" and not source.name.startswith(WITHOUT_KERNEL)
        for call, name in source.calls()
        if name in {"asyncio.sleep", "time.sleep", "sleep"}
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_undone() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error", "mark.x" + "fail")
    marks = re.compile(rf"\b({'|'.join(words)})\b")
    wrong = [source.name for source in sources(*WRITTEN) if marks.search(source.text)]
    assert not wrong, "\n".join(wrong)


def test_no_tracked_file_names_the_machine_it_was_written_on() -> None:
    place = "/wo" + "rk/"
    found = subprocess.run(["git", "grep", "-lF", place, "--", "."], cwd=ROOT, capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip("not a git checkout")
    assert not found.stdout.split()
