"""The service itself, driven with recorded durations, against the simulation of the same: decisions must be equal.

Here the service is its application on a real SQLite store and real blobs, fed through its consumer and its inbox; the
world around it hears only what it publishes. The clock is set, since two runs on a wall clock are never alike. With a
broker between them: live_broker.py.
"""

from collections.abc import Sequence
from pathlib import Path

from forgerl.common.v1 import run_pb2

from loadtests.scheduler.platform import Imagined
from loadtests.scheduler.world import RUN, Recording, World
from services.contract.run_spec import resolve
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.scheduler.adapters.journal import StoredJournal
from services.scheduler.adapters.reports import BlobReports
from services.scheduler.bootstrap import EVENT_MODULES, SERVICE, build_scheduler
from services.scheduler.domain import facts
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if
from services.scheduler.entrypoints.consumer import Consumer, run_config

# When an input was taken, what it was about, and what was decided on it.
Step = tuple[float, str, tuple[Decision, ...]]


def recording(durations_us: Sequence[int], step_us: int, scheduling: run_pb2.SchedulingSpec) -> Recording:
    """A run of one domain."""
    spec = run_pb2.RunSpec(domains=[run_pb2.DomainSpec(name="agent")], scheduling=scheduling)
    return Recording(resolve(spec), durations_us, step_us)


def simulated(recorded: Recording) -> list[Step]:
    """The simulator's steps."""
    platform = Imagined(run_config(recorded.spec), recorded.durations_us, recorded.step_us)
    return [_step(taken, decisions) for taken, decisions in what_if(platform, State())]


async def recorded_steps(store: EventStore) -> list[Step]:
    """What the service's own record of the run holds."""
    return [_step(entry.taken, entry.decisions) for entry in await StoredJournal(store).read(RUN, 0)]


def _step(taken: facts.Input, decisions: Sequence[Decision]) -> Step:
    fact = taken.fact
    about = getattr(fact, "episode_id", "") or getattr(fact, "step", "")
    return taken.taken_at_s, f"{type(fact).__name__} {about}".strip(), tuple(decisions)


class Live(World):
    """The application, its consumer and inbox, and the world."""

    def __init__(self, folder: Path, recorded: Recording) -> None:
        super().__init__(recorded, Catalogue.from_modules(EVENT_MODULES), Blobs.open(f"file://{folder}/blobs"))
        self._store = EventStore.open(f"sqlite:///{folder}/scheduler.db", self.catalogue, self.clock)
        self._scheduler = build_scheduler(self._store, self.blobs, self.catalogue, self.clock)
        self._consumer = Consumer(self._scheduler, BlobReports(self.blobs), self.clock)
        self._inbox = Inbox(self._store, SERVICE)
        self._heard = 0

    async def steps(self) -> list[Step]:
        """Drive the service until nothing more happens; what its journal then holds."""
        await self.live()
        found = await recorded_steps(self._store)
        await self._store.close()
        return found

    async def deliver(self, events: Sequence[Event]) -> None:
        await self._inbox.handle(events, self._consumer.handle)
        await self._hear()

    async def tick(self) -> None:
        await self._scheduler.tick()
        await self._hear()

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()

    async def _hear(self) -> None:
        """React to all that was published since."""
        while published := await self._store.notifications(self._heard, 1000):
            self._heard = published[-1][0]
            for _, event in published:
                await self.react(event.message)


def difference(live: Sequence[Step], imagined: Sequence[Step]) -> str:
    """The first step at which they part; empty when they are equal, bit for bit."""
    for index, (ours, theirs) in enumerate(zip(live, imagined, strict=False)):
        if ours != theirs:
            return f"step {index}: live {ours}; simulated {theirs}"
    return "" if len(live) == len(imagined) else f"live took {len(live)} inputs, the simulator {len(imagined)}"
