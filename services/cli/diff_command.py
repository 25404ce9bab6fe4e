"""`forgerl diff`: two recorded runs side by side. Refuses to judge which is better."""

import asyncio
import json
import sys
from typing import Any

from forgerl.events.v1 import gateway_pb2
from google.protobuf import json_format
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.cli.errors import UsageError
from services.cli.pool.places import PoolPlaces
from services.cli.replay_command import ask
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore

_CURVE_ROWS = 12


def diff_runs(instance: str | None, run_id: str, other_id: str, *, as_json: bool) -> None:
    """Prints what differs, or one JSON object."""
    found = ask(instance, run_id, "--against", other_id)
    specs = asyncio.run(_specs(instance, run_id, other_id))
    if all(specs):
        names = sorted({*specs[0], *specs[1]})
        values = {name: [spec.get(name) for spec in specs] for name in names}
        found["settings"] = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    console = Console(highlight=False)
    for table in (_settings(found), _totals(found), _curves(found)):
        console.print(table)
    parted = found["first_divergence"]
    if parted is None:
        short = min(found["decisions"])
        console.print(f"the queues decide the same throughout: {short} decisions that both have")
        return
    console.print(f"the queues part at decision {parted['decision']}:")
    for name in found["runs"]:
        console.print(f"  {escape(name)}: {escape(str(parted.get(name)))}")


async def _specs(instance: str | None, *run_ids: str) -> list[dict[str, Any]]:
    """The resolved run files, flat; empty where the gateway's store is not at hand."""
    try:
        url = PoolPlaces.of(instance).store("gateway")
    except UsageError:
        return [{} for _ in run_ids]
    store = EventStore.open(url, Catalogue.from_modules([gateway_pb2]), SystemClock())
    try:
        flat: list[dict[str, Any]] = []
        for run_id in run_ids:
            events = await store.read(f"gateway.run/{run_id}", limit=1)
            created = events[0].message if events else None
            spec = created.spec if isinstance(created, gateway_pb2.RunCreated) else None
            flat.append(_flat(json_format.MessageToDict(spec, preserving_proto_field_name=True)) if spec else {})
        return flat
    finally:
        await store.close()


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [(f"{place}.{name}" if place else str(name), inner) for name, inner in value.items()]
    elif isinstance(value, list):
        parts = [(f"{place}[{index}]", inner) for index, inner in enumerate(value)]
    else:
        return {place: value}
    return {name: leaf for where, inner in parts for name, leaf in _flat(inner, where).items()}


def _table(first: str, runs: list[str]) -> Table:
    table = Table(box=None)
    table.add_column(first)
    for run_id in runs:
        table.add_column(run_id, justify="right")
    return table


def _settings(found: dict[str, Any]) -> Table:
    table = _table("setting that differs", found["runs"])
    for name, values in found["settings"].items():
        table.add_row(name, *[_shown(value) for value in values])
    return table


def _totals(found: dict[str, Any]) -> Table:
    table = _table("total", found["runs"])
    ours, theirs = found["totals"]
    for name, value in ours.items():
        if isinstance(value, dict):
            for part in sorted({*value, *theirs[name]}):
                table.add_row(f"{name}: {part}", *[_shown(run[name].get(part, 0)) for run in (ours, theirs)])
        else:
            table.add_row(name, _shown(value), _shown(theirs[name]))
    return table


def _curves(found: dict[str, Any]) -> Table:
    """Mean reward by step; at most a dozen steps, evenly spread, the last one among them."""
    table = _table("step: mean reward", found["runs"])
    points = [{point["step"]: point["reward_mean"] for point in curve} for curve in found["curves"]]
    steps = sorted({*points[0], *points[1]})
    stride = max(1, -(-len(steps) // _CURVE_ROWS))
    for step in steps[::-1][::stride][::-1]:
        table.add_row(str(step), *[_shown(run.get(step)) for run in points])
    return table


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
