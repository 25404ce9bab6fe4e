"""Services' private messages: stores hold them, and reading one needs its generated module."""

import importlib
from pathlib import Path

from forgerl.events.v1 import gateway_pb2


def know_private_messages() -> None:
    """Import every generated module, so that any event of any store can be read. May be called again."""
    root = Path(gateway_pb2.__file__).parents[3]
    for path in sorted((root / "forgerl").rglob("*_pb2.py")):
        importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
