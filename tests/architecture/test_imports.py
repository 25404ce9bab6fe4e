"""Who may import whom (DESIGN 14)."""

from source import LIBRARIES, SERVICES, Source, sources

ALLOWED = {service: {service, *LIBRARIES} for service in SERVICES} | {
    "kernel": {"kernel"},
    "contract": {"contract"},
    "environments": {"environments"},
    "client": {"client", "kernel", "contract", "environments"},
    "cli": {"cli", *LIBRARIES},
    "console": {"console", *LIBRARIES},
}
# What a domain may not touch: it gets time, chance and effects handed in.
IMPURE = {
    *("asyncio", "time", "random", "secrets", "uuid", "socket", "os", "pathlib", "subprocess", "threading", "tempfile"),
    *("sqlite3", "logging", "structlog", "httpx", "grpc", "aiokafka", "faststream", "obstore", "temporalio", "psycopg"),
    *("eventsourcing", "fastapi", "opentelemetry", "sys", "shutil", "signal", "multiprocessing", "requests", "aiohttp"),
    "urllib.request",
}
PURE_STANDARD = {
    *("asyncio", "collections", "dataclasses", "datetime", "enum", "typing", "json", "functools", "contextlib"),
}


def test_services_import_only_themselves_and_the_shared_libraries() -> None:
    wrong = [
        f"{source.name}: {name}"
        for source in sources("services")
        for name in source.imports()
        if name.startswith("services.") and source.package and name.split(".")[1] not in ALLOWED[source.package]
    ]
    assert not wrong, "\n".join(wrong)


def is_domain(source: Source) -> bool:
    return "domain" in source.path.parts or source.package == "contract"


def test_domains_are_pure() -> None:
    wrong: list[str] = []
    for source in filter(is_domain, sources("services")):
        for name in source.imports():
            if name.split(".")[0] in IMPURE or name.rpartition(".")[0] in IMPURE:
                wrong.append(f"{source.name}: imports {name}")
            if name.startswith("services.") and source.package in SERVICES:
                inside = name.startswith(
                    (f"services.{source.package}.domain", "services.contract", "services.environments")
                )
                if not inside and name.rpartition(".")[0] != "services.kernel.errors":
                    wrong.append(f"{source.name}: imports {name}")
        for call, name in source.calls():
            if name in {"open", "print", "input"} or name.endswith((".now", ".utcnow", ".today")):
                wrong.append(f"{source.name}:{call.lineno}: calls {name}")
    assert not wrong, "\n".join(wrong)


def defines_workflows(source: Source) -> bool:
    return "workflow.defn" in source.text and any(
        "workflow.defn" in ast_name for node in source.tree.body for ast_name in (_decorators(node))
    )


def _decorators(node: object) -> list[str]:
    from source import dotted

    found = getattr(node, "decorator_list", [])
    return [dotted(getattr(item, "func", item)) for item in found]


def test_workflows_import_only_what_is_deterministic() -> None:
    flows = [source for source in sources("services") if defines_workflows(source)]
    assert flows, "no workflow found: the test looks in the wrong place"
    wrong: list[str] = []
    for source in flows:
        own = (f"services.{source.package}.domain", "services.contract", "services.environments.interface")
        for name in source.imports():
            if not (
                name.startswith(("temporalio", "forgerl.", "google.", *own)) or name.split(".")[0] in PURE_STANDARD
            ):
                wrong.append(f"{source.name}: {name}")
    assert not wrong, "\n".join(wrong)
