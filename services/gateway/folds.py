"""Reads episodes and runs from the store, and gathers what a decision is going to write.

It refuses to write anything itself: `Batch.writes` is handed to whoever owns the transaction.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from google.protobuf.message import Message

from services.gateway.domain.episodes import Episode
from services.gateway.domain.runs import Run
from services.gateway.sessions import episode_stream
from services.kernel.clock import Clock
from services.kernel.envelope import Event
from services.kernel.errors import NotFound
from services.kernel.event_store import EventStore, Write


def view_stream(episode_id: str) -> str:
    """Private stream of what was observed of an episode."""
    return f"gateway.view/{episode_id}"


def run_stream(run_id: str) -> str:
    """Published stream of a run."""
    return f"gateway.run/{run_id}"


def progress_stream(run_id: str) -> str:
    """Private stream of what was observed of a run."""
    return f"gateway.progress/{run_id}"


FLEET_STREAM = "gateway.fleet/training"
"""Private stream of claims: whoever wants to train appends here, so that two can't begin at once."""


@dataclass(frozen=True, slots=True)
class Past:
    """An event's message and time."""

    message: Message
    time: datetime


class Batch:
    """Streams as they were read, with what is to be appended to them."""

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._past: dict[str, list[Past]] = {}
        self._versions: dict[str, int] = {}
        self._new: dict[str, list[Message]] = {}

    async def events(self, stream: str) -> list[Past]:
        """Everything in the stream, what is to be appended included."""
        if stream not in self._past:
            found = await self._store.read(stream)
            new = [Past(message, self._clock.now()) for message in self._new.get(stream, [])]
            self._past[stream] = [*(Past(event.message, event.time) for event in found), *new]
            self._versions[stream] = len(found)
        return self._past[stream]

    async def load(self, streams: Iterable[str], blind: Iterable[str]) -> None:
        """Read streams at once that will be asked for, and the versions of those whose past does not matter."""
        for stream, events in (await self._store.read_many(streams)).items():
            self._past[stream] = [Past(event.message, event.time) for event in events]
            self._versions[stream] = len(events)
        self._versions |= await self._store.versions(blind)

    async def add(self, stream: str, message: Message) -> None:
        """Append to a stream that was read whole."""
        (await self.events(stream)).append(Past(message, self._clock.now()))
        self._new.setdefault(stream, []).append(message)

    async def add_blind(self, stream: str, message: Message) -> None:
        """Append to a stream whose past does not matter."""
        if stream not in self._versions:
            self._versions[stream] = await self._store.version(stream)
        self._new.setdefault(stream, []).append(message)
        if stream in self._past:
            self._past[stream].append(Past(message, self._clock.now()))

    def expect(self, stream: str, version: int) -> None:
        """The stream was read elsewhere, up to this version."""
        self._versions.setdefault(stream, version)

    def pending(self, stream: str) -> list[Message]:
        """What is to be appended."""
        return self._new.get(stream, [])

    def writes(self) -> list[Write]:
        """All of it."""
        return [Write(stream, self._versions[stream], tuple(messages)) for stream, messages in self._new.items()]


@dataclass(slots=True)
class _KnownRun:
    run: Run = field(default_factory=Run)
    run_version: int = 0
    progress_version: int = 0


class Folds:
    """Episodes and runs by id. Runs are kept and only what is new is read; episodes are read whole (a few events)."""

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._runs: dict[str, _KnownRun] = {}

    def batch(self) -> Batch:
        """A new, empty batch."""
        return Batch(self._store, self._clock)

    async def run(self, run_id: str, batch: Batch | None = None) -> Run:
        """A run, with what the batch would append; a copy. Raises NotFound."""
        known = self._runs.setdefault(run_id, _KnownRun())
        news = await self._store.read(run_stream(run_id), after=known.run_version)
        progress = await self._store.read(progress_stream(run_id), after=known.progress_version)
        # Another call may have read the same events while this one waited for its own.
        news = [event for event in news if event.version > known.run_version]
        progress = [event for event in progress if event.version > known.progress_version]
        for event in sorted([*news, *progress], key=lambda event: event.time):
            known.run.apply(event.message, event.time)
        known.run_version += len(news)
        known.progress_version += len(progress)
        if not known.run.run_id:
            del self._runs[run_id]
            raise NotFound(f"run {run_id!r} is not known here")
        run = copy.deepcopy(known.run)
        if batch is not None:
            batch.expect(run_stream(run_id), known.run_version)
            batch.expect(progress_stream(run_id), known.progress_version)
            for message in (*batch.pending(run_stream(run_id)), *batch.pending(progress_stream(run_id))):
                run.apply(message, self._clock.now())
        return run

    async def episode(self, episode_id: str, batch: Batch | None = None) -> Episode:
        """An episode, with what the batch would append. Raises NotFound."""
        batch = batch or self.batch()
        own = list(await batch.events(episode_stream(episode_id)))
        seen = list(await batch.events(view_stream(episode_id)))
        if not own:
            raise NotFound(f"episode {episode_id!r} was never submitted here")
        return _folded(own, seen)

    async def submitted(self, episode_ids: Iterable[str]) -> dict[str, tuple[Episode, str]]:
        """Those of the episodes that were ever submitted, each with its submission's traceparent; in one read."""
        names = {one: (episode_stream(one), view_stream(one)) for one in episode_ids}
        found = await self._store.read_many(stream for streams in names.values() for stream in streams)
        return {
            one: (_folded(found[own], found[seen]), found[own][0].cause.traceparent)
            for one, (own, seen) in names.items()
            if found[own]
        }


def _folded(own: Sequence[Past | Event], seen: Sequence[Past | Event]) -> Episode:
    episode = Episode()
    for past in sorted([*own, *seen], key=lambda past: past.time):
        episode.apply(past.message, past.time)
    return episode
