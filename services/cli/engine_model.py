"""Checks that the engines of a local stack can load a run's policies: they keep the shape that they started with."""

import json
from pathlib import Path

from services.cli.errors import UsageError
from services.client import Places
from services.contract.policy_folder import MODEL_SHAPE


def _config(model: Path) -> dict[str, object]:
    try:
        return json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        return {}


def check_engine_model(places: Places, model: Path) -> None:
    """Raises UsageError naming the first difference; says nothing when the stack runs elsewhere."""
    if places.folder is None:
        return
    try:
        recorded = json.loads((places.folder / "stack.json").read_text()).get("env", {})
    except (OSError, ValueError):
        return
    served = Path(recorded.get("FORGERL_ENGINE_MODEL", ""))
    theirs, ours = _config(served), _config(model)
    for name in MODEL_SHAPE if theirs and ours else ():
        if theirs.get(name) != ours.get(name):
            raise UsageError(
                f"model.path: {model} has {name}={ours.get(name)!r}, the engines were started with {served} "
                f"({name}={theirs.get(name)!r}): forgerl up --model {model}"
            )
