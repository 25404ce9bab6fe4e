"""`deploy/stack.yaml`: the one description of all processes, parsed and resolved for one instance.

A new kind of child is one entry there; nothing here names a child.
"""

import re
import sys
from collections.abc import Callable, Mapping
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
    """How a child shows that it serves: a TCP port, a URL that answers 2xx, or gRPC health."""

    kind: Literal["tcp", "http", "grpc"]
    target: str


class ChildEntry(_Strict):
    """One process. `replicas` > 1 makes NAME-1 … NAME-n, each with its own `${index}`."""

    command: tuple[str, ...] = Field(min_length=1)
    env: Mapping[str, str] = {}
    # Ports that this child listens on, by name; each is chosen free and kept for the instance.
    ports: tuple[str, ...] = ()
    health: Health | None = None
    depends_on: tuple[str, ...] = ()
    replicas: str = "1"
    # Not started when this variable of the environment is set: the user brings their own.
    unless_env: str | None = None
    start_timeout_s: float = Field(120, gt=0)
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
) -> Stack:
    """Children ready to start. Raises UsageError on an unknown or circular dependency."""
    counts = {name: int(resolver.fill(entry.replicas)) for name, entry in entries.items()}
    shared = {name: environ.get(name) or resolver.fill(text) for name, text in file.env.items()}
    children: list[Child] = []
    for entry_name, entry in entries.items():
        for dependency in entry.depends_on:
            if dependency not in file.children:
                raise UsageError(f"stack file: {entry_name} depends on unknown {dependency!r}")
        for index, name in enumerate(names_of(entry_name, counts[entry_name]), start=1):
            fill = lambda text, index=index: resolver.fill(text, index)  # noqa: E731
            needs = [n for d in entry.depends_on if d in entries for n in names_of(d, counts[d])]
            health = entry.health and Health(kind=entry.health.kind, target=fill(entry.health.target))
            children.append(
                Child(
                    name=name,
                    entry=entry_name,
                    command=tuple(fill(part) for part in entry.command),
                    env=shared | {key: environ.get(key) or fill(text) for key, text in entry.env.items()},
                    health=health or None,
                    depends_on=tuple(needs),
                    **entry.model_dump(include={"start_timeout_s", "stop_grace_s", "restarts", "restart_window_s"}),
                )
            )
    _check_order(children)
    return Stack(children=tuple(children), ports={})


def _check_order(children: list[Child]) -> None:
    waiting = {child.name: set(child.depends_on) for child in children}
    while ready := [name for name, needs in waiting.items() if not needs]:
        for name in ready:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(ready)
    if waiting:
        raise UsageError(f"stack file: circular dependency among {', '.join(sorted(waiting))}")
