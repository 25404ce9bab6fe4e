"""`forgerl why` and `forgerl ledger`: what became of one episode, and of all. Refuses to add anything to the record."""

import json
import sys
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.client import Client


def explain_episode(instance: str | None, episode_id: str, *, as_json: bool) -> None:
    """Every recorded fact, in order, each with its event's id, and the verdict."""
    with Client(instance) as client:
        found = client.why(episode_id)
    if as_json:
        _print_json(found)
        return
    console = Console(highlight=False)
    for line in found.lines:
        when = line.time.ToDatetime().isoformat(sep=" ", timespec="milliseconds")
        console.print(f"[dim]{when}[/]  {escape(line.fact)}  [dim]{escape(line.event_id)}[/]")
    console.print(f"[bold]{found.verdict}[/]")


def show_ledger(instance: str | None, run_id: str, *, as_json: bool) -> None:
    """Totals that add up, and each domain's items: wanted, consumed, trained, dropped."""
    with Client(instance) as client:
        found = client.ledger(run_id)
    if as_json:
        _print_json(found)
        return
    console = Console(highlight=False)
    dropped = sum(found.dropped.values())
    sign = "=" if found.balanced else "[bold red]is not[/]"
    console.print(
        f"{found.submitted} submitted {sign} {found.trained} trained + {dropped} dropped + {found.in_flight} in flight"
    )
    for name, counts in (
        ("dropped", found.dropped),
        ("in flight", found.in_flight_by_stage),
        ("evaluations", found.evaluations_ended),
    ):
        if counts:
            console.print(f"{name}: " + ", ".join(f"{part} {count}" for part, count in sorted(counts.items())))
    console.print(
        f"window {found.window_items} · out of order {found.out_of_order_mean:.2f} mean, {found.out_of_order_max} most"
        f" · lag {found.lag_items_mean:.2f} mean, {found.lag_items_max} most items"
        f" · staleness {found.staleness_mean:.2f} mean, {found.staleness_max} most steps"
        f" · {found.partial_episodes} episodes of several policies"
        + (f" · {found.pruned} pruned" if found.pruned else "")
    )
    table = Table(box=None)
    for column in ("domain", "wanted", "submitted", "consumed", "items", "trained", "no spread", "otherwise dropped"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    for name, book in sorted(found.domains.items()):
        dull = book.dropped_items.get("no_spread", 0)
        counts = (book.consumed_items, book.taken_items, dull, sum(book.dropped_items.values()) - dull)
        shares = (book.wanted_share, book.submitted_share, book.consumed_share)
        table.add_row(name, *[f"{share:.1%}" for share in shares], *[str(count) for count in counts])
    console.print(table)


def _print_json(message: Message) -> None:
    found: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    sys.stdout.write(json.dumps(found) + "\n")
