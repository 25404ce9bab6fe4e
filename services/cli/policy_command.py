"""`forgerl policy`: lists, shows and exports published policies."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forgerl.trainer.v1.policy_service_pb2 import PolicyView
from rich.console import Console
from rich.table import Table

from services.cli.errors import CommandError, UsageError
from services.client import Client
from services.contract.policy_folder import ADAPTER_FOLDER
from services.kernel.blobs import Blobs
from services.kernel.errors import ForgeError

BOOKKEEPING = "manifest.json"
GONE = "gone"
_ROOT = "/policies/"


def list_policies(instance: str | None, run: str, *, as_json: bool) -> None:
    """Prints one line a policy, oldest first: those that are gone too."""
    with Client(instance) as client:
        found = client.policies(run, include_gone=True)
    if as_json:
        for policy in found:
            print(json.dumps(described(policy)))  # noqa: T201
        return
    table = Table(box=None)
    for column in ("step", "digest", "published", "reward", "mismatch KL", "MiB", "kept", "where"):
        table.add_column(column, overflow="fold")
    for policy in found:
        facts = described(policy)
        table.add_row(
            str(policy.step),
            policy.digest[:12],
            facts["published_at"],
            _number(facts["reward_mean"], ".3f"),
            _number(facts["mismatch_kl"], ".2e"),
            f"{policy.size_bytes / 2**20:.1f}",
            facts["kept"] + (" + adapter" if policy.adapter and policy.kept_as else ""),
            policy.uri if policy.kept_as else "",
        )
    Console(highlight=False).print(table)


def show_policy(instance: str | None, run: str, step: int, *, as_json: bool) -> None:
    """Prints everything that is known of one policy, with every metric of the step that made it."""
    with Client(instance) as client:
        policy = _of_step(client.policies(run, include_gone=True), run, step)
        metrics = next((dict(made.metrics) for made in client.metrics(run) if made.step == step), {})
    facts = described(policy)
    if as_json:
        print(json.dumps(facts | {"metrics": metrics}, sort_keys=True))  # noqa: T201
        return
    table = Table(box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(name, "–" if value is None else str(value))
    for name, value in sorted(metrics.items()):
        table.add_row(f"metrics.{name}", f"{value:g}")
    Console(highlight=False).print(table)


def export_policy(instance: str | None, run: str, step: int, out: Path, *, adapter: bool) -> None:
    """A copy under another name first, then one rename: a half-written folder is never at `out`."""
    if out.exists():
        raise UsageError(f"{out}: is there already; name a new folder")
    with Client(instance) as client:
        policy = _of_step(client.policies(run), run, step)
    if adapter and not policy.adapter:
        raise UsageError(f"--adapter: policy {step} of {run} has none; allowed where training.lora_rank is above 0")
    partial, scratch = (out.with_name(f".{out.name}.{end}") for end in ("partial", "fetched"))
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        folder = asyncio.run(_fetched(policy.uri, scratch))
        source = folder / ADAPTER_FOLDER if adapter else folder
        shutil.copytree(source, partial, ignore=shutil.ignore_patterns(BOOKKEEPING, ADAPTER_FOLDER))
        partial.replace(out)
    except (OSError, shutil.Error, ForgeError) as error:
        raise CommandError(f"export to {out}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)
    what = "adapter of policy" if adapter else "policy"
    Console(highlight=False).print(
        f"forgerl: {what} {step} of {run} ({policy.digest[:12]}) is at {out}", soft_wrap=True
    )


def described(policy: PolicyView) -> dict[str, Any]:
    """What a policy's line says, as plain values; None where a step measured nothing."""
    return {
        "step": policy.step,
        "digest": policy.digest,
        "published_at": policy.published_at.ToDatetime().isoformat(sep=" ", timespec="seconds"),
        "reward_mean": policy.reward_mean if policy.HasField("reward_mean") else None,
        "mismatch_kl": policy.mismatch_kl if policy.HasField("mismatch_kl") else None,
        "size_bytes": policy.size_bytes,
        "kept": policy.kept_as or GONE,
        "adapter": policy.adapter,
        "uri": policy.uri,
    }


async def _fetched(uri: str, scratch: Path) -> Path:
    """A folder with the policy's files, each checked against its sha256."""
    return await Blobs.open(uri.partition(_ROOT)[0]).fetch_folder(uri, scratch)


def _of_step(found: Sequence[PolicyView], run: str, step: int) -> PolicyView:
    for policy in found:
        if policy.step == step:
            return policy
    known = ", ".join(str(policy.step) for policy in found) or "none"
    raise UsageError(f"step: given {step}; allowed of {run}: {known}")


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
