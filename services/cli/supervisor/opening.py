"""Puts a supervisor together for an instance: stack file, ports, secrets, left-overs of a start that died.

Refuses to start an instance that already runs.
"""

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.cli.errors import UsageError
from services.cli.supervisor import processes
from services.cli.supervisor.child_log import Echo
from services.cli.supervisor.free_disk import check_free_disk
from services.cli.supervisor.health import HealthProbe, Tls
from services.cli.supervisor.instance import CHECKOUT, Instance
from services.cli.supervisor.ports import PortBook, check_variables
from services.cli.supervisor.processes import ProcessId
from services.cli.supervisor.stack_file import Resolver, Stack, read_stack_file, resolve, select
from services.cli.supervisor.supervisor import Supervisor
from services.client.run_file import find_model

SHIPPED_MODEL = CHECKOUT / "examples" / "models" / "tiny-qwen3"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `forgerl up` was asked for."""

    engines: int = 1
    only: tuple[str, ...] = ()
    # Model folder for the engines; None: FORGERL_ENGINE_MODEL, else the shipped one.
    model: Path | None = None
    file: Path = CHECKOUT / "deploy" / "stack.yaml"


def only_names(given: str | None) -> tuple[str, ...]:
    """The names in `--only`; none when it wasn't given. Raises UsageError when it was, and names nobody."""
    names = tuple(part.strip() for part in (given or "").split(",") if part.strip())
    if given is not None and not names:
        raise UsageError(f"--only: given {given!r}; allowed names of deploy/stack.yaml, by comma")
    return names


def running_supervisor(instance: Instance) -> ProcessId | None:
    """The `up` that holds the instance now."""
    state = instance.read_state()
    process = ProcessId(int(state.get("pid") or 0), int(state.get("started") or 0))
    return process if process.pid and processes.is_alive(process) else None


class OpenInstance:
    """Holds the instance's lock from `open` to `close`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        instance.prepare()
        self._lock = (instance.dir / "up.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = running_supervisor(instance)
            pid = f" (pid {holder.pid})" if holder else ""
            raise UsageError(f"instance {instance.name} is already up{pid}: forgerl down, or --instance") from None
        processes.reap(instance.dir, grace_s=3.0)

    def close(self) -> None:
        self._lock.close()

    def stack(self, options: UpOptions, environ: Mapping[str, str] = os.environ) -> Stack:
        """Everything resolved; ports are chosen here."""
        if options.engines < 1:
            raise UsageError(f"--engines: given {options.engines}; allowed 1 or more")
        check_free_disk(self.instance.dir, environ)
        model = options.model or Path(environ.get("FORGERL_ENGINE_MODEL") or SHIPPED_MODEL)
        model = find_model(str(model), Path.cwd())
        file = read_stack_file(options.file)
        check_variables(options.file.read_text(), environ)
        entries = select(file, options.only, environ)
        book = PortBook(self.instance.read_state().get("ports", {}), environ)
        secrets = self.instance.make_secrets()
        variables = {"engines": str(options.engines), "model": str(model), **secrets}
        resolver = Resolver(self.instance, variables, book.port_of)
        # All of an entry's own ports exist even when no other child names them.
        for entry in entries.values():
            for port in entry.ports:
                for index in range(1, int(resolver.fill(entry.replicas)) + 1):
                    book.port_of(port.replace("${index}", str(index)))
        children = resolve(file, entries, resolver, environ)
        return Stack(children=children, ports=dict(book.ports))

    def supervisor(self, options: UpOptions, echo: Echo | None = None) -> Supervisor:
        token = self.instance.make_secrets()["FORGERL_TOKEN"]
        return Supervisor(self.instance, self.stack(options), HealthProbe(token, Tls.of(os.environ)), echo)
