"""An index over all runs and episodes, kept by following the store, and the watchers that wait for changes.

It holds a few words an episode, never turns. It refuses to be the truth: it is built anew at every start, and any
replica's may be asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2

from services.kernel.envelope import Event
from services.kernel.event_store import EventStore

RUNS = "runs"
_PAGE = 500
# Other replicas' appends wake nobody here.
_LOOK_AGAIN_S = 0.5


@dataclass(slots=True)
class EpisodeLine:
    """What lists and counts need."""

    run_id: str
    kind: int
    sealed: bool = False
    turn_count: int = 0
    sampled_tokens: int = 0


@dataclass(slots=True)
class RunLine:
    """Counts of a run; evaluation episodes apart. `episode_ids` in the order of submission."""

    episode_ids: list[str] = field(default_factory=list[str])
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
        self.episodes: dict[str, EpisodeLine] = {}

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
            read = _PAGE
            # A page that isn't full was the last one.
            while read == _PAGE:
                page = await self._store.notifications(self._cursor, _PAGE)
                for number, event in page:
                    self._take(event)
                    self._cursor = number
                read = len(page)

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
        line = self.episodes.get(key)
        match event.message:
            case gateway_pb2.RunCreated():
                self.run_ids.append(key)
            case gateway_pb2.EpisodeSubmitted() as message:
                self._submitted(message)
            case gateway_pb2.TrajectorySealed() as message:
                self._sealed(message)
            case record_pb2.TurnRecorded() as message if line is not None:
                # A turn that was taken up again holds what it had before: the seal has the exact figure.
                again = message.HasField("replaces")
                line.turn_count += 0 if again else 1
                line.sampled_tokens += 0 if again else (message.spans[-1].end if message.spans else 0)
            case _:
                pass
        if noun == "gateway.run":
            self._wake(RUNS)
        self._wake(f"{'run' if noun in ('gateway.run', 'gateway.progress') else 'episode'}/{key}")

    def _submitted(self, message: gateway_pb2.EpisodeSubmitted) -> None:
        self.episodes[message.episode_id] = EpisodeLine(message.run_id, message.kind)
        run = self.runs.setdefault(message.run_id, RunLine())
        run.episode_ids.append(message.episode_id)
        if message.kind == task_pb2.EPISODE_KIND_EVALUATION:
            run.evaluations_submitted += 1
        else:
            run.submitted += 1
        self._wake(f"run/{message.run_id}")

    def _sealed(self, message: gateway_pb2.TrajectorySealed) -> None:
        self._on_sealed(message.episode_id)
        line = self.episodes[message.episode_id]
        line.sealed = True
        line.turn_count, line.sampled_tokens = message.turn_count, message.sampled_tokens
        run = self.runs[message.run_id]
        if line.kind == task_pb2.EPISODE_KIND_EVALUATION:
            run.evaluations_sealed += 1
        else:
            run.sealed += 1
        self._wake(f"run/{message.run_id}")

    def _wake(self, key: str) -> None:
        for watcher in self._watchers.get(key, ()):
            watcher.set()
