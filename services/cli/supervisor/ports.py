"""Ports of an instance: chosen free, kept from one start to the next, checked when somebody asked for one.

A port may be fixed by FORGERL_PORT_<NAME> (dashes become underscores).
"""

import os
import random
import re
import socket
from collections.abc import Mapping

from services.cli.errors import UsageError

_PREFIX = "FORGERL_PORT_"
_RANGE = range(15_000, 32_000)
_NAMED = re.compile(r"\$\{port:((?:[^${}]|\$\{index\})+)\}")


def variable_of(name: str) -> str:
    """The variable that fixes the port of that name."""
    return _PREFIX + name.upper().replace("-", "_")


def check_variables(stack_text: str, environ: Mapping[str, str]) -> None:
    """Raise UsageError for a FORGERL_PORT_… that fixes no port of the stack file: it would be ignored."""
    names = sorted({variable_of(name.replace("${index}", "N")) for name in _NAMED.findall(stack_text)})
    known = re.compile("|".join(re.sub(r"_N(?=_|$)", r"_\\d+", name) for name in names))
    for given in environ:
        if given.startswith(_PREFIX) and not known.fullmatch(given):
            raise UsageError(f"{given}: fixes no port; allowed {', '.join(names)}")


def is_free(port: int) -> bool:
    """Whether loopback could be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class PortBook:
    """Hands out ports by name. Raises UsageError when a fixed port is taken."""

    def __init__(self, kept: Mapping[str, int], environ: Mapping[str, str] = os.environ) -> None:
        self._kept = kept
        self._environ = environ
        self._random = random.SystemRandom()
        self.ports: dict[str, int] = {}

    def port_of(self, name: str) -> int:
        """The same answer for the same name as long as the book lives."""
        if name not in self.ports:
            self.ports[name] = self._choose(name)
        return self.ports[name]

    def _choose(self, name: str) -> int:
        variable = variable_of(name)
        fixed = self._environ.get(variable)
        if fixed:
            if not (fixed.isascii() and fixed.isdigit() and 0 < int(fixed) < 65536):
                raise UsageError(f"{variable}: given {fixed!r}; allowed 1 to 65535")
            if other := next((known for known, port in self.ports.items() if port == int(fixed)), None):
                raise UsageError(f"{variable}: given {fixed}, which is the port of {other}; allowed another")
            if not is_free(int(fixed)):
                raise UsageError(f"port in use: {variable}={fixed} is taken by another process")
            return int(fixed)
        kept = self._kept.get(name)
        if kept and kept not in self.ports.values() and is_free(kept):
            return kept
        return self._any_free()

    def _any_free(self) -> int:
        # Below the range from which the system takes ports for outgoing connections: one of those could
        # otherwise sit on a child's port just when it starts again.
        for port in self._random.sample(_RANGE, len(_RANGE)):
            if port not in self.ports.values() and is_free(port):
                return port
        raise UsageError(f"no port is free from {_RANGE[0]} to {_RANGE[-1]}: {_PREFIX}… names others")
