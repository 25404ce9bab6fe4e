"""What each room must not do (services/README.md, CONTRIBUTING): who calls whom inside a service, and how."""

import ast
import re
from collections.abc import Iterator

from source import SERVICES, Source, dotted, sources

EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
HTTP_CLIENTS = {"httpx.AsyncClient", "httpx.Client", "httpx.get", "httpx.post", "aiohttp.ClientSession"}
WAITING = HTTP_CLIENTS | {"urllib.request.urlopen", "socket.create_connection"}
# Asks whether a door is open, before anything that kernel.rpc needs is there.
PROBES = {"services/cli/supervisor/health.py"}
# Words that say nothing of what a thing is.
EMPTY_WORDS = {"Manager", "Helper", "Util", "Utils", "Data", "Info"}


def rooms() -> list[Source]:
    return [source for source in sources("services") if source.package in SERVICES]


def inside(source: Source) -> Iterator[str]:
    """Imports from the own service, as room.module…"""
    own = f"services.{source.package}."
    yield from (name.removeprefix(own) for name in source.imports() if name.startswith(own))


def decides(source: Source) -> bool:
    return "domain" in source.path.parts or source.path.name in ("application.py", "ports.py")


def inner(source: Source) -> bool:
    """Whether it is neither adapter nor door, and wires nothing."""
    doors = {"adapters", "entrypoints"}.intersection(source.path.parts)
    return not doors and source.path.name not in ("bootstrap.py", "__main__.py")


def test_the_inside_knows_neither_adapters_nor_doors() -> None:
    wrong = [
        f"{source.name}: {name}"
        for source in filter(inner, rooms())
        for name in inside(source)
        if name.startswith(("adapters", "entrypoints", "bootstrap"))
    ]
    assert not wrong, "\n".join(wrong)


def test_adapters_call_nobody_back() -> None:
    wrong = [
        f"{source.name}: {name}"
        for source in rooms()
        if "adapters" in source.path.parts
        for name in inside(source)
        if name.startswith(("application", "entrypoints", "bootstrap"))
    ]
    assert not wrong, "\n".join(wrong)


def test_wiring_is_asked_for_by_the_start_only() -> None:
    wrong = [
        f"{source.name}: {name}"
        for source in rooms()
        if source.path.name != "__main__.py"
        for name in inside(source)
        if name.startswith("bootstrap")
    ]
    assert not wrong, "\n".join(wrong)


def test_decisions_are_typed() -> None:
    untyped = [
        f"{source.name}:{node.lineno}"
        for source in rooms()
        if "domain" in source.path.parts or source.path.name == "application.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert not untyped, "\n".join(untyped)


def said(call: ast.Call) -> list[ast.expr]:
    """The message of a log call; both, where it is one of two."""
    first = call.args[0] if call.args else ast.Constant(None)
    return [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]


def test_log_messages_are_constant_and_name_what_happened() -> None:
    wrong = [
        f"{source.name}:{call.lineno}: {ast.unparse(message)}"
        for source in sources("services")
        for call, _ in source.calls()
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
        and dotted(call.func.value.func) == "get_logger"
        for message in said(call)
        if not (isinstance(message, ast.Constant) and EVENT.fullmatch(str(message.value)))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_client_is_given_a_deadline() -> None:
    wrong = [
        f"{source.name}:{call.lineno}: {name}"
        for source in sources("services")
        for call, name in source.calls()
        if name in WAITING and "timeout" not in {keyword.arg for keyword in call.keywords}
    ]
    assert not wrong, "\n".join(wrong)


def test_grpc_channels_come_from_the_kernel_which_gives_them_token_and_deadline() -> None:
    wrong = [
        f"{source.name}:{call.lineno}: {name}"
        for source in sources("services")
        if source.package != "kernel" and source.name not in PROBES
        for call, name in source.calls()
        if name.startswith("grpc.") and name.endswith("_channel")
    ]
    assert not wrong, "\n".join(wrong)


def test_classes_and_functions_are_named_after_what_they_are_or_do() -> None:
    wrong: list[str] = []
    for source in sources("services", "loadtests"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and EMPTY_WORDS & set(re.findall(r"[A-Z][a-z0-9]*", node.name)):
                wrong.append(f"{source.name}:{node.lineno} {node.name}")
        wrong += [f"{source.name}:{f.lineno} {f.name}" for f in source.functions() if f.name.strip("_") == "process"]
    assert not wrong, "\n".join(wrong)


def test_what_others_import_says_what_it_is() -> None:
    silent = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in sources("services")
        if source.package in (*SERVICES, "kernel", "contract", "environments", "client", "cli")
        for node in source.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)
