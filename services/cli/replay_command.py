"""`forgerl replay`: asks the scheduler's own rules about a recorded run, and shows the answer.

Refuses to know those rules itself: they run as a program of the scheduler's, services/scheduler/entrypoints/replay.py,
on its event store.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.cli.errors import CommandError
from services.cli.pool.places import PoolPlaces

_PROGRAM = "services.scheduler.entrypoints.replay"
_CHECKOUT = Path(__file__).resolve().parents[2]

ROWS = (
    ("batches", "batches", "d"),
    ("items_taken", "items trained", "d"),
    ("span_s", "time, s", ".1f"),
    ("items_per_s", "items/s", ".3f"),
    ("trainer_idle_share", "trainer idle", ".1%"),
    ("stall_share", "stalled by the window", ".1%"),
    ("lag_items_mean", "queue lag, mean items", ".2f"),
    ("lag_items_max", "queue lag, most items", "d"),
    ("staleness_mean_steps", "staleness, mean steps", ".2f"),
    ("staleness_max_steps", "staleness, most steps", "d"),
    ("drift_kl_duration", "drift of durations, nats", ".4f"),
    ("distance_mean", "out of order, mean items", ".2f"),
    ("distance_max", "out of order, most items", "d"),
)


def ask(instance: str | None, *arguments: str) -> dict[str, Any]:
    """The program's answer. Raises CommandError with its line."""
    store = PoolPlaces.of(instance).store("scheduler")
    done = subprocess.run(
        [sys.executable, "-m", _PROGRAM, store, *arguments], cwd=_CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CommandError(said[-1] if said else f"{_PROGRAM} ended with code {done.returncode}")
    return json.loads(done.stdout)


def replay_run(instance: str | None, run_id: str, *, as_json: bool) -> None:
    """Raises CommandError when today's rules decide otherwise than was decided."""
    found = ask(instance, run_id)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
    elif found["agrees"]:
        Console(highlight=False).print(
            f"forgerl: run {run_id}: {found['inputs']} inputs, {found['decisions']} decisions and {found['batches']}"
            f" batches are what the rules make of them, bit for bit ({found['inputs_per_s']:.0f} inputs/s)"
        )
    if not found["agrees"]:
        raise CommandError(f"run {run_id} was decided otherwise: {found['first_disagreement']}")


def what_would_have_happened(
    instance: str | None, run_id: str, rules: tuple[str | None, str | None], *, as_json: bool
) -> None:
    """`rules`: policy and window, either of which may be left as recorded."""
    given = [(name, value) for name, value in zip(("--policy", "--window"), rules, strict=True) if value]
    found = ask(instance, run_id, *[word for pair in given for word in pair])
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    console = Console(highlight=False)
    was, would = found["rules"]["recorded"], found["rules"]["would_be"]
    table = Table(box=None)
    table.add_column(run_id)
    for heading in (rule_name(was), "the same, re-timed", rule_name(would)):
        table.add_column(heading, justify="right")
    columns = [found[name] for name in ("recorded", "retimed", "would_be")]
    for key, label, form in ROWS:
        table.add_row(label, *[format(column[key], form) for column in columns])
    for reason in sorted({reason for column in columns for reason in column["dropped"]}):
        table.add_row(f"items dropped: {reason}", *[str(column["dropped"].get(reason, 0)) for column in columns])
    shares = found["same_batch_share"]
    table.add_row("in the same batch as recorded", "", f"{shares['retimed']:.1%}", f"{shares['would_be']:.1%}")
    console.print(table)
    for note in found["notes"]:
        console.print(f"[dim]{escape(note)}[/]")


def rule_name(rules: dict[str, Any]) -> str:
    """A policy and its window, as a heading."""
    if rules["policy"] != "windowed_fifo":
        return rules["policy"]
    return f"windowed_fifo W={'auto' if rules.get('auto') else rules['window_items']}"
