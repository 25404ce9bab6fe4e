"""`deploy/stack.yaml`: the one description of all processes, parsed and resolved for one instance.

A new kind of child is one entry there; nothing here names a child.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.cli.errors import UsageError
from services.cli.supervisor.instance import CHECKOUT, Instance

_PLACE = re.compile(r"\$\{(\w+)(?::([\w-]+))?\}")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Health(_Strict):
    """How a child shows that it serves: a TCP port, a URL that answers 2xx, or gRPC health.

    `grpc` speaks TLS where the environment has the services speak it; `plain-grpc` never does.
    """

    kind: Literal["tcp", "http", "grpc", "plain-grpc"]
    target: str


class ChildEntry(_Strict):
    """One process. `replicas` > 1 makes NAME-1 … NAME-n, each with its own `${index}`."""

    command: tuple[str, ...] = Field(min_length=1)
    env: Mapping[str, str] = {}
    # Ports that this child listens on, by name; each is chosen free and kept for the instance.
    ports: tuple[str, ...] = ()
    health: Health | None = None
    # Started once these are healthy, stopped before them.
    depends_on: tuple[str, ...] = ()
    # Stopped before these, but not waited for at the start: it bears their absence.
    uses: tuple[str, ...] = ()
    replicas: str = "1"
    # Not started when this variable of the environment is set: the user brings their own.
    unless_env: str | None = None
    start_timeout_s: float = Field(300, gt=0)
    stop_grace_s: float = Field(10, gt=0)
    # Restarts within `restart_window_s` before all is stopped.
    restarts: int = Field(5, ge=0)
    restart_window_s: float = Field(300, gt=0)


class StackFile(_Strict):
    """The file as written. `env` reaches every child, unless the user's environment already has the name."""

    env: Mapping[str, str] = {}
    children: Mapping[str, ChildEntry]


class Child(_Strict):
    """A child with everything filled in."""

    name: str
    entry: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    health: Health | None
    depends_on: tuple[str, ...]
    outlived_by: tuple[str, ...]
    start_timeout_s: float
    stop_grace_s: float
    restarts: int
    restart_window_s: float


class Stack(_Strict):
    """All children of one instance, in the file's order."""

    children: tuple[Child, ...]
    ports: Mapping[str, int]


def read_stack_file(path: Path) -> StackFile:
    """Raises UsageError naming the file and the first bad field."""
    try:
        return StackFile.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


class Resolver:
    """Fills in `${port:name}`, `${dir}`, `${instance}`, `${python}`, `${root}`, `${index}` and the named variables."""

    def __init__(self, instance: Instance, variables: Mapping[str, str], port_of: Callable[[str], int]) -> None:
        self._values = {"dir": str(instance.dir), "instance": instance.name, "python": sys.executable} | {
            "root": str(CHECKOUT),
            "bin": str(Path(sys.executable).parent),
            **variables,
        }
        self._port_of = port_of

    def fill(self, text: str, index: int = 1) -> str:
        """Raises UsageError for a place that nothing fills."""

        def value(found: re.Match[str]) -> str:
            name, argument = found.group(1), found.group(2)
            if name == "port" and argument:
                return str(self._port_of(argument))
            if name not in self._values:
                raise UsageError(f"stack file: unknown place {found.group(0)}; allowed {', '.join(self._values)}, port")
            return self._values[name]

        return _PLACE.sub(value, text.replace("${index}", str(index)))


def names_of(entry_name: str, replicas: int) -> list[str]:
    """Names of an entry's children."""
    return [entry_name] if replicas == 1 else [f"{entry_name}-{index}" for index in range(1, replicas + 1)]


def select(file: StackFile, only: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, ChildEntry]:
    """The entries to run: `only` (all when empty) without those that the user brings from outside."""
    unknown = [name for name in only if name not in file.children]
    if unknown:
        raise UsageError(f"--only: unknown {unknown[0]!r}; allowed {', '.join(file.children)}")
    return {
        name: entry
        for name, entry in file.children.items()
        if (not only or name in only) and not (entry.unless_env and environ.get(entry.unless_env))
    }


def resolve(
    file: StackFile, entries: Mapping[str, ChildEntry], resolver: Resolver, environ: Mapping[str, str]
) -> tuple[Child, ...]:
    """Children ready to start. Raises UsageError on an unknown or circular dependency."""
    names = {name: names_of(name, int(resolver.fill(entry.replicas))) for name, entry in entries.items()}
    shared = {name: environ.get(name) or resolver.fill(text) for name, text in file.env.items()}
    for name, entry in entries.items():
        for other in (*entry.depends_on, *entry.uses):
            if other not in file.children:
                raise UsageError(f"stack file: {name} depends on unknown {other!r}")
    children = tuple(
        _child(name, index, (entry_name, entries[entry_name]), _Filled(resolver, shared, environ, names))
        for entry_name, of_entry in names.items()
        for index, name in enumerate(of_entry, start=1)
    )
    _check_order(children)
    return children


@dataclass(frozen=True, slots=True)
class _Filled:
    """What a child's entry is filled in from."""

    resolver: Resolver
    shared: Mapping[str, str]
    environ: Mapping[str, str]
    names: Mapping[str, list[str]]

    def names_of(self, entries: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for entry in entries for name in self.names.get(entry, ()))


def _child(name: str, index: int, named: tuple[str, ChildEntry], filled: _Filled) -> Child:
    entry_name, entry = named

    def fill(text: str) -> str:
        return filled.resolver.fill(text, index)

    own = {key: filled.environ.get(key) or fill(text) for key, text in entry.env.items()}
    return Child(
        name=name,
        entry=entry_name,
        command=tuple(fill(part) for part in entry.command),
        env={**filled.shared, **own},
        health=Health(kind=entry.health.kind, target=fill(entry.health.target)) if entry.health else None,
        depends_on=filled.names_of(entry.depends_on),
        outlived_by=filled.names_of((*entry.depends_on, *entry.uses)),
        **entry.model_dump(include={"start_timeout_s", "stop_grace_s", "restarts", "restart_window_s"}),
    )


def _check_order(children: tuple[Child, ...]) -> None:
    waiting = {child.name: set(child.outlived_by) for child in children}
    while ready := [name for name, needs in waiting.items() if not needs]:
        for name in ready:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(ready)
    if waiting:
        raise UsageError(f"stack file: circular dependency among {', '.join(sorted(waiting))}")
