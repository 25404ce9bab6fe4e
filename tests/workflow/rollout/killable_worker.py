"""A rollout worker on a real store and a scripted model, for a test that kills it. The first one hangs in turn two."""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from forgerl.events.v1 import rollout_pb2
from rollout_scripted import ScriptedModel, ScriptedSandbox, asks, episodes, said
from temporalio.client import Client

from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore
from services.rollout.adapters.journal import StoredJournal
from services.rollout.domain.episode import Ending, EpisodeStart
from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.worker import EpisodeWorker
from services.rollout.ports import ModelCall, Reply


@dataclass
class HangingModel(ScriptedModel):
    """Hangs in its second turn where told to; else answers by how far the conversation is."""

    script: list[Reply | Exception | float] = field(default_factory=list)
    hangs: bool = True

    async def complete(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        if len(call.messages) == 2:
            return asks("6*7")
        if self.hangs:
            sys.stdout.write("second turn\n")
            sys.stdout.flush()
            await asyncio.sleep(600)
        return said("42")


@dataclass(frozen=True, slots=True)
class TellingJournal(StoredJournal):
    """Tells what this worker did before the workflow can end."""

    report: Path = Path()
    model: HangingModel = field(default_factory=HangingModel)
    sandbox: ScriptedSandbox = field(default_factory=ScriptedSandbox)

    async def record_ended(self, start: EpisodeStart, ending: Ending) -> None:
        await StoredJournal.record_ended(self, start, ending)
        events = await self.store.read(f"rollout.episode/{start.episode_id}")
        told = {
            "tools": len(self.sandbox.programs),
            "keys": [call.idempotency_key for call in self.model.calls],
            "events": [type(event.message).__name__ for event in events],
        }
        await asyncio.to_thread(self.report.write_text, json.dumps(told))


async def main(address: str, store_url: str, report: str) -> None:
    """Run until killed."""
    clock = SystemClock()
    store = EventStore.open(store_url, Catalogue.from_modules([rollout_pb2]), clock)
    model, sandbox = HangingModel(hangs=report.endswith("first")), ScriptedSandbox()
    journal = TellingJournal(store, clock, Path(report), model, sandbox)
    parts = episodes(model, journal=journal, sandbox=sandbox)
    await EpisodeWorker(await Client.connect(address), "episodes", EpisodeActivities(parts), 8, sandboxed=True).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
