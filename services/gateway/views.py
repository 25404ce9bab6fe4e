"""An index over all runs and episodes, kept by following the store, and the watchers that wait for changes.

It holds an id and a kind for every episode of a run that isn't removed, a little more of one that isn't sealed, never
turns. It refuses to be the truth: it is built anew at every start, and any replica's may be asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2

from services.gateway.sessions import turns_stream
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore

RUNS = "runs"
_PAGE = 500
# Other replicas' appends wake nobody here.
_LOOK_AGAIN_S = 0.5
_STREAMS_AT_ONCE = 20
_SUBMITTED = gateway_pb2.EpisodeSubmitted.DESCRIPTOR.full_name
# What the index is made of at a start. Turns are most of a log's bytes: sealed episodes have their figures in the seal.
_INDEXED = (
    _SUBMITTED,
    gateway_pb2.RunCreated.DESCRIPTOR.full_name,
    gateway_pb2.RunRemoved.DESCRIPTOR.full_name,
    gateway_pb2.TrajectorySealed.DESCRIPTOR.full_name,
)


@dataclass(slots=True)
class EpisodeLine:
    """What was recorded so far of an episode that isn't sealed; `version` of its turns' stream."""

    version: int = 0
    turn_count: int = 0
    sampled_tokens: int = 0


@dataclass(slots=True)
class RunLine:
    """Counts of a run; evaluation episodes apart. `kinds` of its episodes by id, in the order of submission."""

    kinds: dict[str, int] = field(default_factory=dict[str, int])
    removed: bool = False
    submitted: int = 0
    sealed: int = 0
    evaluations_submitted: int = 0
    evaluations_sealed: int = 0


class Views:
    """A part: follows the store's log."""

    def __init__(self, store: EventStore, on_sealed: Callable[[str], None]) -> None:
        self._store, self._on_sealed = store, on_sealed
        self._appended = store.subscribe()
        self._cursor = 0
        self._catching_up = asyncio.Lock()
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self.runs: dict[str, RunLine] = {}
        self.run_ids: list[str] = []
        self.unsealed: dict[str, EpisodeLine] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._appended.clear()
            await self.catch_up()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._appended.wait(), timeout=_LOOK_AGAIN_S)

    async def catch_up(self) -> None:
        """Take in everything that was committed before this call."""
        async with self._catching_up:
            if not self._cursor:
                await self._read(_INDEXED)
                await self._count_turns()
            await self._read(())

    async def kinds(self, run_id: str) -> Mapping[str, int]:
        """Kinds of a run's episodes by id, in the order of submission; a removed run's are read out of the log."""
        await self.catch_up()
        run = self.runs.get(run_id, RunLine())
        if not run.removed:
            return run.kinds.copy()
        kinds, after = dict[str, int](), 0
        while page := await self._store.notifications(after, _PAGE, (_SUBMITTED,)):
            after = page[-1][0]
            for _, event in page:
                if isinstance(event.message, gateway_pb2.EpisodeSubmitted) and event.message.run_id == run_id:
                    kinds[event.message.episode_id] = event.message.kind
        return kinds

    async def _read(self, types: Sequence[str]) -> None:
        read = _PAGE
        # A page that isn't full was the last one.
        while read == _PAGE:
            page = await self._store.notifications(self._cursor, _PAGE, types)
            for number, event in page:
                self._take(event)
                self._cursor = number
            read = len(page)

    async def _count_turns(self) -> None:
        ids = list(self.unsealed)
        for first in range(0, len(ids), _STREAMS_AT_ONCE):
            streams = [turns_stream(one) for one in ids[first : first + _STREAMS_AT_ONCE]]
            for events in (await self._store.read_many(streams)).values():
                for event in events:
                    self._take(event)

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Once at the beginning, then after changes of `run/ID` or `episode/ID`; several may be one."""
        changed = self.subscribe(key)
        try:
            while True:
                changed.clear()
                yield
                await changed.wait()
        finally:
            self.unsubscribe(key, changed)

    def subscribe(self, key: str) -> asyncio.Event:
        """A flag that is set after changes of a run, an episode, or of any run's own stream (`RUNS`)."""
        changed = asyncio.Event()
        self._watchers.setdefault(key, set()).add(changed)
        return changed

    def unsubscribe(self, key: str, changed: asyncio.Event) -> None:
        """Give a flag back."""
        self._watchers[key].discard(changed)
        if not self._watchers[key]:
            del self._watchers[key]

    def _take(self, event: Event) -> None:
        noun, _, key = event.stream.partition("/")
        match event.message:
            case gateway_pb2.RunCreated():
                self.run_ids.append(key)
            case gateway_pb2.RunRemoved():
                self._removed(key)
            case gateway_pb2.EpisodeSubmitted() as message:
                self._submitted(message)
            case gateway_pb2.TrajectorySealed() as message:
                self._sealed(message)
            case record_pb2.TurnRecorded() as message:
                self._recorded(key, event.version, message)
            case _:
                pass
        if noun == "gateway.run":
            self._wake(RUNS)
        self._wake(f"{'run' if noun in ('gateway.run', 'gateway.progress') else 'episode'}/{key}")

    def _submitted(self, message: gateway_pb2.EpisodeSubmitted) -> None:
        self.unsealed[message.episode_id] = EpisodeLine()
        run = self.runs.setdefault(message.run_id, RunLine())
        run.kinds[message.episode_id] = message.kind
        if message.kind == task_pb2.EPISODE_KIND_EVALUATION:
            run.evaluations_submitted += 1
        else:
            run.submitted += 1
        self._wake(f"run/{message.run_id}")

    def _recorded(self, episode_id: str, version: int, message: record_pb2.TurnRecorded) -> None:
        line = self.unsealed.get(episode_id)
        if line is None or version <= line.version:
            return
        line.version = version
        # A turn that was taken up again holds what it had before: the seal has the exact figure.
        if not message.HasField("replaces"):
            line.turn_count += 1
            line.sampled_tokens += message.spans[-1].end if message.spans else 0

    def _sealed(self, message: gateway_pb2.TrajectorySealed) -> None:
        self._on_sealed(message.episode_id)
        self.unsealed.pop(message.episode_id, None)
        run = self.runs[message.run_id]
        # The counts of a run that was removed stand as they were.
        kind = run.kinds.get(message.episode_id)
        if kind == task_pb2.EPISODE_KIND_EVALUATION:
            run.evaluations_sealed += 1
        elif kind is not None:
            run.sealed += 1
        self._wake(f"run/{message.run_id}")

    def _removed(self, run_id: str) -> None:
        run = self.runs.setdefault(run_id, RunLine())
        for episode_id in run.kinds:
            self.unsealed.pop(episode_id, None)
        run.kinds, run.removed = {}, True

    def _wake(self, key: str) -> None:
        for watcher in self._watchers.get(key, ()):
            watcher.set()
