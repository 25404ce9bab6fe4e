"""Reads recorded queues and says on stdout, as JSON, whether today's rules decide the same, what other rules would have
come to, or where two runs part. A program of its own: `python -m services.scheduler.entrypoints.replay STORE RUN …`.

It needs the scheduler's event store and nothing that runs; it refuses to write, to any store.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

from forgerl.events.v1 import scheduler_pb2

from services.contract.scheduling_spec import share_items, window_share
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.errors import ForgeError, NotFound, Permanent
from services.kernel.event_store import EventStore
from services.scheduler.adapters.journal import StoredJournal
from services.scheduler.adapters.manifests import build_manifest
from services.scheduler.domain.books import balanced
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.contrast import Painter, changed, first_divergence
from services.scheduler.domain.decisions import CloseBatch, Decision
from services.scheduler.domain.hindsight import Hindsight
from services.scheduler.domain.outcome import Observer, same_batch_share
from services.scheduler.domain.queue import advance, fold
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if
from services.scheduler.ports import Entry

_PAGE = 5_000
POLICIES = ("windowed_fifo", "strict_fifo", "greedy", "version_window")


class Records:
    """Recorded queues in the scheduler's store."""

    def __init__(self, store: EventStore) -> None:
        self._store, self._journal = store, StoredJournal(store)

    async def entries(self, run_id: str) -> AsyncIterator[Entry]:
        """A run's entries in order. Raises NotFound."""
        version = 0
        while page := await self._journal.read(run_id, version, _PAGE):
            version += len(page)
            for entry in page:
                yield entry
        if not version:
            known = ", ".join(await self._journal.run_ids()) or "none"
            raise NotFound(f"run: given {run_id!r}; the scheduler's store holds {known}")

    async def manifests(self, run_id: str) -> dict[int, str]:
        """sha256 of the manifest of each batch that was published."""
        events = [event.message for event in await self._store.read(f"scheduler.batch/{run_id}")]
        return {e.batch: e.manifest.sha256 for e in events if isinstance(e, scheduler_pb2.BatchAssembled)}


async def verify(records: Records, run_id: str) -> dict[str, Any]:
    """Decide everything anew from the inputs alone, and compare with the record and with the published batches."""
    manifests = await records.manifests(run_id)
    state, inputs, decisions, first = State(), 0, 0, ""
    batches = 0
    started_s = time.perf_counter()
    async for entry in records.entries(run_id):
        inputs += 1
        decided: list[Decision] = []
        for decision in advance(state, entry.taken):
            if isinstance(decision, CloseBatch) and not first:
                manifest = build_manifest(run_id, decision.batch, state.filling).SerializeToString(deterministic=True)
                found = hashlib.sha256(manifest).hexdigest()
                if found != manifests.get(decision.batch):
                    first = f"batch {decision.batch}: published {manifests.get(decision.batch)}; rebuilt {found}"
                batches += 1
            decided.append(decision)
        decisions += len(decided)
        if tuple(decided) != entry.decisions:
            source = f"scheduler.queue/{run_id}@{inputs} ({entry.taken.event_id or 'tick'})"
            first = f"{source}: recorded {list(entry.decisions)}; decided {decided}"
        if first:
            break
    elapsed_s = time.perf_counter() - started_s
    return {
        "run_id": run_id,
        "agrees": not first,
        "first_disagreement": first,
        "inputs": inputs,
        "decisions": decisions,
        "batches": batches,
        "pruned": state.tally.pruned,
        "balanced": balanced(state),
        "elapsed_s": elapsed_s,
        "inputs_per_s": inputs / elapsed_s if elapsed_s > 0 else 0.0,
    }


async def prunable(records: Records, run_id: str, keep_steps: int) -> dict[str, Any]:
    """Episodes that a request would prune now, of the record as it stands."""
    state = State()
    async for entry in records.entries(run_id):
        for _ in fold(state, entry.taken, entry.decisions):
            pass
    last = state.completed - keep_steps
    return {"steps": state.completed, "episode_ids": [one for step, one in state.closed if step <= last]}


async def hindsight(records: Records, run_id: str, policy: str | None, window: str | None) -> dict[str, Any]:
    """The record, the same rules re-timed, and what would have been, up to the last batch that all have."""
    entries = [(entry.taken, list(entry.decisions)) async for entry in records.entries(run_id)]
    try:
        known = Hindsight(entries)
        if known.config is None:
            raise ValueError("record: given none")
        config, notes = other_rules(known.config, policy, window)
    except ValueError as error:
        raise Permanent(str(error)) from error
    platform = known.platform(config)
    schedules = [entries, list(what_if(known.platform(known.config), State())), list(what_if(platform, State()))]
    batches = min(sum(isinstance(d, CloseBatch) for _, decided in schedule for d in decided) for schedule in schedules)
    observers = [Observer(batches) for _ in schedules]
    for observer, schedule in zip(observers, schedules, strict=True):
        for taken, decided in schedule:
            observer.watch(taken, decided)
    recorded, retimed, would_be = observers
    if known.groups > platform.used_groups:
        notes.append(f"{known.groups - platform.used_groups} groups are left out: the record does not know their end")
    if batches < known.batches:
        notes.append(f"compared up to batch {batches} of {known.batches}: the groups that are known go no further")
    return {
        "run_id": run_id,
        "rules": {
            "recorded": {"policy": known.config.selection, "window_items": known.config.reach_items},
            "would_be": {"policy": config.selection, "window_items": config.reach_items, "auto": config.window_auto},
        },
        "recorded": asdict(recorded.outcome()),
        # What the model of the platform makes of the run's own rules: how far the third may be trusted.
        "retimed": asdict(retimed.outcome()),
        "would_be": asdict(would_be.outcome()),
        "same_batch_share": {
            "retimed": same_batch_share(recorded.order, retimed.order),
            "would_be": same_batch_share(recorded.order, would_be.order),
        },
        "notes": notes,
    }


def other_rules(config: RunConfig, policy: str | None, window: str | None) -> tuple[RunConfig, list[str]]:
    """The run's numbers under another policy or window, and what had to be understood. Raises ValueError."""
    selection = policy or config.selection
    if selection not in POLICIES:
        raise ValueError(f"policy: given {policy!r}; allowed {', '.join(POLICIES)}")
    notes: list[str] = []
    changes: dict[str, Any] = {"selection": selection}
    if selection == "version_window" and config.selection != "version_window":
        changes["version_window_steps"] = config.lookahead_steps
    if selection != "windowed_fifo":
        changes["window_auto"] = False
        if window:
            notes.append(f"{selection} has no window: {window!r} changes nothing")
    elif window == "auto":
        changes |= {"window_auto": True, "drift_bound": config.drift_bound or 0.05}
    elif window:
        share = window_share(window)
        if share is None:
            raise ValueError(f"window: given {window!r}; allowed auto, or a share of N above 0..1")
        changes |= {"window_auto": False, "window_items": share_items(share, config.queue_items)}
    return replace(config, **changes), notes


async def contrast(records: Records, run_id: str, other_id: str) -> dict[str, Any]:
    """Two runs side by side."""
    portraits = []
    for name in (run_id, other_id):
        painter = Painter(name)
        async for entry in records.entries(name):
            painter.see(entry.taken, entry.decisions)
        portraits.append(painter.portrait)
    ours, theirs = portraits
    parted = first_divergence(ours.decided, theirs.decided)
    return {
        "runs": [run_id, other_id],
        "settings": {name: list(values) for name, values in changed(ours.settings, theirs.settings).items()},
        "totals": [ours.totals(), theirs.totals()],
        "curves": [[asdict(point) for point in portrait.curve] for portrait in portraits],
        "first_divergence": None if parted is None else dict(zip(("decision", run_id, other_id), parted, strict=True)),
        "decisions": [len(ours.decided), len(theirs.decided)],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="replay", description="Recorded queues: decide anew, otherwise, or compare.")
    parser.add_argument("store", help="URL of the scheduler's event store")
    parser.add_argument("run")
    parser.add_argument("--policy")
    parser.add_argument("--window")
    parser.add_argument("--prunable", type=int, metavar="KEEP_STEPS", help="which episodes a request would prune")
    parser.add_argument("--against", help="another run of the same store")
    return parser


async def answer(asked: argparse.Namespace) -> dict[str, Any]:
    """What was asked for. Raises ForgeError."""
    store = EventStore.open(asked.store, Catalogue.from_modules([scheduler_pb2]), SystemClock())
    try:
        records = Records(store)
        if asked.against:
            return await contrast(records, asked.run, asked.against)
        if asked.prunable is not None:
            return await prunable(records, asked.run, asked.prunable)
        if asked.policy or asked.window:
            return await hindsight(records, asked.run, asked.policy, asked.window)
        return await verify(records, asked.run)
    finally:
        await store.close()


def main() -> None:
    """One JSON object on stdout, or one line on stderr and exit code 1."""
    try:
        sys.stdout.write(json.dumps(asyncio.run(answer(_parser().parse_args()))) + "\n")
    except ForgeError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
