"""`forgerl policy`: lists and exports published policies."""

import shutil
from pathlib import Path
from urllib.parse import urlparse

from rich.console import Console
from rich.table import Table

from services.cli.errors import CommandError, UsageError
from services.client import Client


def list_policies(instance: str | None, run: str) -> None:
    """Prints one line a policy."""
    with Client(instance) as client:
        found = client.policies(run)
    table = Table(box=None)
    for column in ("step", "digest", "published", "where"):
        table.add_column(column, overflow="fold")
    for policy in found:
        when = policy.published_at.ToDatetime().isoformat(sep=" ", timespec="seconds")
        table.add_row(str(policy.step), policy.digest[:12], when, policy.uri)
    Console(highlight=False).print(table)


def export_policy(instance: str | None, run: str, step: int, out: Path) -> None:
    """A copy under another name first, then one rename: a half-written folder is never at `out`."""
    if out.exists():
        raise UsageError(f"{out}: is there already; name a new folder")
    with Client(instance) as client:
        found = {policy.step: policy for policy in client.policies(run)}
    if step not in found:
        kept = ", ".join(str(known) for known in sorted(found)) or "none"
        raise UsageError(f"step: given {step}; kept policies of {run}: {kept}")
    source = urlparse(found[step].uri)
    if source.scheme not in ("", "file"):
        raise CommandError(f"the policy is at {found[step].uri}: fetch it from there")
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(source.path, partial)
        partial.replace(out)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CommandError(f"export to {out}: {error}") from error
    Console(highlight=False).print(f"forgerl: policy {step} of {run} ({found[step].digest[:12]}) is at {out}")
