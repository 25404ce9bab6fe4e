"""One instance of the stack on this machine: its folder, ports, secrets and the record of what runs.

Refuses to hold anything in memory only: another command reads the same folder.
"""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.errors import UsageError
from services.client.places import home, read_secrets

CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Instance:
    """Names every path of an instance; `name` matches [a-z0-9-]{1,40}."""

    name: str
    dir: Path

    @classmethod
    def named(cls, name: str | None = None) -> "Instance":
        """FORGERL_INSTANCE or "default" when no name is given."""
        name = name or os.environ.get("FORGERL_INSTANCE") or "default"
        if not (1 <= len(name) <= 40 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in name)):
            raise UsageError(f"instance: given {name!r}; allowed 1 to 40 of a-z, 0-9 and -")
        return cls(name, home() / name)

    @property
    def logs(self) -> Path:
        return self.dir / "logs"

    @property
    def traces(self) -> Path:
        return self.dir / "traces"

    @property
    def state_file(self) -> Path:
        return self.dir / "stack.json"

    def log_of(self, child: str) -> Path:
        return self.logs / f"{child}.log"

    def prepare(self) -> None:
        """Makes the folders; may be called again."""
        for folder in (self.dir, self.logs, self.traces):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"instance folder {folder}: {error.strerror}") from error

    def read_state(self) -> dict[str, Any]:
        """The record of the last `up`; empty when there was none."""
        try:
            return json.loads(self.state_file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.state_file} can't be read: {error}") from error

    def write_state(self, state: dict[str, Any]) -> None:
        """Replaces the record in one rename, so that a reader never sees half of it."""
        temporary = self.state_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(state, indent=1))
        temporary.replace(self.state_file)

    def read_secrets(self) -> dict[str, str]:
        """Token and signing key; the environment wins over the file. Empty when neither is there."""
        names = ("FORGERL_TOKEN", "FORGERL_SECRET")
        return read_secrets(self.dir) | {name: os.environ[name] for name in names if os.environ.get(name)}

    def make_secrets(self) -> dict[str, str]:
        """Generates what is missing, once an instance; readable by the owner only."""
        known = self.read_secrets()
        path = self.dir / "secrets"
        if not path.exists():
            made = {name: known.get(name) or secrets.token_urlsafe(32) for name in ("FORGERL_TOKEN", "FORGERL_SECRET")}
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as out:
                out.write("".join(f"{name}={value}\n" for name, value in made.items()))
        return self.read_secrets()
