"""Where a stack is and how to show that one may talk to it: from an instance's folder, or from the environment.

Refuses to guess: without a record of a start and without FORGERL_GATEWAY_ADDRESS there is one clear error.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.kernel.errors import InvalidInput, NotFound, Refused

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:/]+):\d{1,5}")

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses as host:port. `folder` is the instance's, None when the stack runs elsewhere."""

    gateway: str
    scheduler: str
    router: str
    trainer: str
    token: str
    folder: Path | None = None
    # Where the services of this machine keep their data, spans among them; `folder` unless FORGERL_DATA_DIR says.
    data_dir: Path | None = None
    tls_ca: Path | None = None

    @classmethod
    def of(cls, instance: str | None = None) -> "Places":
        """Of a local instance (FORGERL_INSTANCE, else "default"); FORGERL_…_ADDRESS and FORGERL_TOKEN win.

        Raises NotFound when neither says where the gateway is, Refused when there's no token, InvalidInput for an
        address or a token that can't be one.
        """
        name = instance or os.environ.get("FORGERL_INSTANCE") or "default"
        folder = home() / name
        recorded = _recorded(folder) | read_secrets(folder)
        known = recorded | {key: value for key, value in os.environ.items() if key.startswith("FORGERL_") and value}
        if "FORGERL_GATEWAY_ADDRESS" not in known:
            raise NotFound(
                f"instance {name} was never started here ({folder}): forgerl up, or set FORGERL_GATEWAY_ADDRESS"
            )
        if not known.get("FORGERL_TOKEN"):
            raise Refused(f"no token: {folder / 'secrets'} can't be read and FORGERL_TOKEN is not set")
        addresses = {
            part: known.get(f"FORGERL_{part.upper()}_ADDRESS", "") for part in ("scheduler", "router", "trainer")
        }
        _check(known)
        ca = known.get("FORGERL_TLS_CA")
        return cls(
            gateway=known["FORGERL_GATEWAY_ADDRESS"],
            token=known["FORGERL_TOKEN"],
            folder=folder if folder.is_dir() else None,
            data_dir=Path(known["FORGERL_DATA_DIR"]) if known.get("FORGERL_DATA_DIR") else folder,
            tls_ca=Path(ca) if ca else None,
            **addresses,
        )

    def is_down(self) -> bool:
        """Whether this machine's record says that the stack at `gateway` was stopped, or its `up` is gone."""
        record = _record(self.folder) if self.folder else {}
        if dict(record.get("env", {})).get("FORGERL_GATEWAY_ADDRESS") != self.gateway:
            return False
        return record.get("state") in ("stopped", "failed") or not Path(f"/proc/{record.get('pid')}").is_dir()


def _check(known: Mapping[str, str]) -> None:
    """Before gRPC takes seconds to say less."""
    for part in ("GATEWAY", "SCHEDULER", "ROUTER", "TRAINER"):
        address = known.get(name := f"FORGERL_{part}_ADDRESS")
        if address and not _ADDRESS.fullmatch(address):
            raise InvalidInput(name, address, "host:port")
    if not (known["FORGERL_TOKEN"].isascii() and known["FORGERL_TOKEN"].isprintable()):
        raise InvalidInput("FORGERL_TOKEN", "another character", "printable ASCII")


def home() -> Path:
    """Folder of all instances: FORGERL_HOME, else `.forgerl` of the checkout, else of the working folder."""
    given = os.environ.get("FORGERL_HOME")
    if given:
        return Path(given).resolve()
    return (CHECKOUT if (CHECKOUT / "deploy" / "stack.yaml").is_file() else Path.cwd()) / ".forgerl"


def _record(folder: Path) -> dict[str, Any]:
    """Of the last `up`; empty when there was none or it can't be read."""
    try:
        record = json.loads((folder / "stack.json").read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _recorded(folder: Path) -> dict[str, str]:
    return dict(_record(folder).get("env", {}))


def read_secrets(folder: Path) -> dict[str, str]:
    """FORGERL_TOKEN and FORGERL_SECRET as `forgerl up` made them; empty when it never did."""
    try:
        lines = (folder / "secrets").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)
