"""The use cases: take inputs, tick, and look. One commit a batch of inputs; refuses to decide (domain/ does).

Each run's state is kept in memory and checked against its stream before every use: the last entry that this
process knows must be the last one recorded, or what came after it is folded in; anything else (another replica
decided, a commit failed) throws the state away and folds the stream anew. So several replicas are safe, and one
of them at a time is fast.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from forgerl.events.v1.scheduler_pb2 import EpisodesPruned

from services.kernel.clock import Clock
from services.kernel.envelope import Cause
from services.kernel.errors import Conflict, NotFound, Permanent, Transient
from services.kernel.event_store import CausedWrite, Write
from services.kernel.logs import get_logger
from services.scheduler.domain.decisions import CloseBatch, Decision, PruneEpisodes
from services.scheduler.domain.facts import Fact, FleetShared, Input, PruningRequested, RunRemoved, Submitted, Ticked
from services.scheduler.domain.fleet import claim_of, fleet_shares
from services.scheduler.domain.ledger import Line, Story, told_by_decision, touched_by_decision, touched_by_fact
from services.scheduler.domain.queue import advance, fold
from services.scheduler.domain.stalls import WARN_SHARE
from services.scheduler.domain.state import State
from services.scheduler.ports import Entry, Journal, Published, Publisher

_COMMIT_WAIT_S = 0.5
_ATTEMPTS = 10


@dataclass(slots=True)
class Desk:
    """A run in memory: its state at `version`, the entry of that version, and which entries concern an episode."""

    state: State = field(default_factory=State)
    version: int = 0
    last: Entry | None = None
    concerning: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    # Submitted, and nothing was published of them yet: only the queue itself knows whose they are.
    untold: set[str] = field(default_factory=set[str])
    # By how many episodes the books were off after the last entry.
    off_by: int = 0

    def note_decision(self, decision: Decision) -> None:
        """The entry after `version` holds the decision, which `state` does not show yet."""
        self.note(touched_by_decision(self.state, decision))
        self.untold.difference_update(told_by_decision(self.state, decision))

    def note(self, episode_ids: Sequence[str]) -> None:
        """The entry after `version` concerns these episodes."""
        for episode_id in episode_ids:
            versions = self.concerning.setdefault(episode_id, [])
            if not versions or versions[-1] != self.version + 1:
                versions.append(self.version + 1)

    def close(self, entry: Entry) -> None:
        """The entry after `version` is complete."""
        self.version, self.last = self.version + 1, entry


class Scheduler:
    """All runs of a store."""

    def __init__(
        self, journal: Journal, publisher: Publisher, clock: Clock, writer: str, fleet_episodes: int = 0
    ) -> None:
        self._journal, self._publisher, self._clock = journal, publisher, clock
        # Episodes that the whole fleet may have in flight; 0 = each run has its own bound only.
        self._fleet_episodes = fleet_episodes
        # Unlike any other process's: by it a replica knows its own entries.
        self._writer = writer
        self._desks: dict[str, Desk] = {}
        self._run_of: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self.moved = asyncio.Event()

    async def load(self) -> None:
        """Fold every recorded queue, so that deadlines and questions are met from the start."""
        async with self._lock:
            for run_id in await self._journal.run_ids():
                await self._current(run_id)
            with suppress(Conflict):  # a replica that starts at the same time says the same
                await self._journal.commit(_merged(await self._share_fleet()))
        self.moved.set()

    async def take(self, inputs: Sequence[tuple[str, Input]]) -> list[Write]:
        """Decide on (run, input) pairs in their order; answers what to append, in one transaction, or not at all."""
        by_run: dict[str, list[Input]] = {}
        for run_id, taken in inputs:
            by_run.setdefault(run_id, []).append(taken)
        async with self._lock:
            writes: list[Write] = []
            for run_id, own in by_run.items():
                await self._current(run_id)
                writes += await self._advance(run_id, own)
            if self._fleet_episodes:
                writes += await self._share_fleet(by_run)
        self.moved.set()
        return _merged(writes)

    async def _share_fleet(self, advanced: Collection[str] = ()) -> list[Write]:
        """Tell every active run its share where that has changed; the caller commits what this answers.

        advanced: runs whose newest entries are not committed yet, so that the stream knows less than the desk.
        """
        if not self._shares_to_tell():
            return []
        for run_id in set(self._desks).union(await self._journal.run_ids()).difference(advanced):
            await self._current(run_id)
        now_s = self._clock.now().timestamp()
        writes: list[Write] = []
        for run_id, share in self._shares_to_tell().items():
            get_logger().info("fleet.shared", run_id=run_id, episodes=share)
            writes += await self._advance(run_id, [Input(now_s, FleetShared(share), occurred_at_s=now_s)])
        return writes

    def _shares_to_tell(self) -> dict[str, int]:
        states = {run_id: desk.state for run_id, desk in self._desks.items() if desk.state.active}
        claims = {run_id: claim for run_id, state in sorted(states.items()) if (claim := claim_of(state)) is not None}
        shares = fleet_shares(claims, self._fleet_episodes) if self._fleet_episodes else dict.fromkeys(claims, 0)
        return {run_id: share for run_id, share in shares.items() if share != states[run_id].fleet_episodes}

    async def tick(self) -> None:
        """Tell each run whose deadline is due what time it is."""
        async with self._lock:
            now_s = self._clock.now().timestamp()
            due = [run_id for run_id, desk in self._desks.items() if _is_due(desk.state, now_s)]
            for run_id in due:
                await self._tell(run_id, now_s, lambda desk: Ticked() if _is_due(desk.state, now_s) else None)

    async def prune(self, run_id: str, keep_steps: int) -> tuple[int, int, list[str]]:
        """Have all episodes pruned that closed so long ago; steps done, episodes, ids of the events. Frees nothing.

        Raises NotFound.
        """
        request = PruningRequested(keep_steps)

        def wanted(desk: Desk) -> PruningRequested | None:
            closed, completed = desk.state.closed, desk.state.completed
            return request if closed and closed[0][0] <= completed - keep_steps else None

        async with self._lock:
            if not (await self._current(run_id)).version:
                del self._desks[run_id]
                raise NotFound(f"run {run_id!r} is not known to the scheduler")
            told = await self._tell(run_id, self._clock.now().timestamp(), wanted)
            desk = self._desks[run_id]
            entry = desk.last if told else None
            pruned = [one for one in entry.decisions if isinstance(one, PruneEpisodes)] if entry else []
            stream, last = self._publisher.stream_of(EpisodesPruned(run_id=run_id)), desk.state.retention_events
            events = [f"{stream}@{version}" for version in range(last - len(pruned) + 1, last + 1)]
            return desk.state.completed, sum(len(one.episode_ids) for one in pruned), events

    async def _tell(self, run_id: str, now_s: float, fact_for: Callable[[Desk], Fact | None]) -> bool:
        """Take an input of the scheduler's own; False where the run as recorded has no use for it (any more)."""
        for _ in range(_ATTEMPTS):
            fact = fact_for(await self._current(run_id))
            if fact is None:
                return False
            writes = await self._advance(run_id, [Input(now_s, fact, occurred_at_s=now_s)])
            try:
                await self._journal.commit(writes)
                return True
            except Conflict:
                continue
        raise Transient(f"run {run_id}: {_ATTEMPTS} conflicts in a row")

    def next_deadline_s(self) -> float | None:
        """When the next tick will be due, in seconds since 1970; None when nothing runs."""
        deadlines = [desk.state.next_deadline_s for desk in self._desks.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    async def state(self, run_id: str) -> State:
        """A run's state, to be read before anything else is awaited. Raises NotFound."""
        async with self._lock:
            desk = await self._current(run_id, reading=True)
            if not desk.version:
                del self._desks[run_id]
                raise NotFound(f"run {run_id!r} is not known to the scheduler")
            return desk.state

    async def explain(self, episode_id: str) -> tuple[str, list[Line], str]:
        """An episode's run, every recorded fact about it in order, and its verdict. Raises NotFound."""
        run_id = self._run_of.get(episode_id) or await self._journal.run_of(episode_id)
        if run_id is None:
            raise NotFound(f"episode {episode_id!r} is not known to the scheduler")
        async with self._lock:
            desk = await self._current(run_id, reading=True)
            versions = list(desk.concerning.get(episode_id, ()))
        if desk.state.removed:
            versions = _concerning(episode_id, await self._journal.read(run_id, 0))
        story = Story(episode_id)
        told: list[Line] = []
        for version in versions:
            for entry in await self._journal.read(run_id, version - 1, 1):
                story.tell(entry.taken, entry.decisions)
            source = f"scheduler.queue/{run_id}@{version}"
            told += [Line(line.time_s, line.event_id or source, line.text) for line in story.lines]
            story.lines.clear()
        return run_id, told, story.verdict

    async def _current(self, run_id: str, *, reading: bool = False) -> Desk:
        """The run as recorded; while reading, a commit of this process that is under way is taken for done."""
        desk = self._desks.get(run_id)
        if desk is not None:
            entries = await self._journal.read(run_id, max(0, desk.version - 1))
            if desk.version and not entries and reading:
                return desk
            if desk.version and not entries:
                await self._journal.appended(_COMMIT_WAIT_S)
                entries = await self._journal.read(run_id, desk.version - 1)
            if not desk.version or (entries and entries[0] == desk.last):
                self._fold(run_id, desk, entries[1 if desk.version else 0 :])
                return desk
            get_logger().info("queue.folded_anew", run_id=run_id, version=desk.version)
        desk = self._desks[run_id] = Desk()
        self._fold(run_id, desk, await self._journal.read(run_id, 0))
        return desk

    def _fold(self, run_id: str, desk: Desk, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._note_fact(run_id, desk, entry.taken)
            for decision in fold(desk.state, entry.taken, entry.decisions):
                desk.note_decision(decision)
            self._close(run_id, desk, entry)

    def _close(self, run_id: str, desk: Desk, entry: Entry) -> None:
        desk.close(entry)
        off_by = desk.state.books_off_by
        if off_by and not desk.off_by:
            # A defect, not an input's fault: the run goes on, and whoever reads the log or the ledger knows.
            get_logger().error("ledger.unbalanced", run_id=run_id, version=desk.version, episodes=off_by)
        desk.off_by = off_by
        if desk.state.removed:
            self._forget(desk)

    def _forget(self, desk: Desk) -> None:
        """Who belonged to a removed run is read from the record when asked: memory does not grow with runs.

        Its state stays, which is small by then: episodes that come to their end later need not fold it anew.
        """
        for episode_id in desk.concerning.keys() - desk.untold:
            self._run_of.pop(episode_id, None)
        desk.concerning.clear()

    def _note_fact(self, run_id: str, desk: Desk, taken: Input) -> None:
        touched = touched_by_fact(desk.state, taken.fact)
        desk.note(touched)
        if isinstance(taken.fact, Submitted):
            desk.untold.add(taken.fact.episode_id)
        for episode_id in touched:
            self._run_of.setdefault(episode_id, run_id)

    async def _advance(self, run_id: str, inputs: Sequence[Input]) -> list[Write]:
        desk = self._desks[run_id]
        version = desk.version
        entries: list[Entry] = []
        published: list[Published] = []
        try:
            for taken in inputs:
                if isinstance(taken.fact, RunRemoved):
                    await self._publisher.remove(run_id)
                self._note_fact(run_id, desk, taken)
                decisions: list[Decision] = []
                for decision in advance(desk.state, taken):
                    desk.note_decision(decision)
                    published += await self._publisher.events(run_id, desk.state, decision, taken.event_id)
                    decisions.append(decision)
                    self._log(run_id, desk.state, decision)
                entries.append(Entry(taken, tuple(decisions), self._writer))
                self._close(run_id, desk, entries[-1])
        except ValueError as error:
            del self._desks[run_id]
            raise Permanent(f"run {run_id}: {error}") from error
        except BaseException:
            # Half-way through an input the state is worth nothing.
            del self._desks[run_id]
            raise
        return [self._journal.write(run_id, version, entries), *self._writes(published)]

    def _writes(self, published: Sequence[Published]) -> list[Write]:
        """One write a stream; a stream's events were decided in order, and share the cause of the first."""
        streams: dict[str, list[Published]] = {}
        for event in published:
            streams.setdefault(self._publisher.stream_of(event.message), []).append(event)
        return [_write(stream, events) for stream, events in streams.items()]

    def _log(self, run_id: str, state: State, decision: Decision) -> None:
        if not isinstance(decision, CloseBatch) or state.plan is None:
            return
        expected = state.expected_stall_share
        measured = state.stalls.measured_share
        shares = {"expected_stall_share": round(expected, 3), "measured_stall_share": round(measured, 3)}
        get_logger().info("batch.assembled", run_id=run_id, batch=decision.batch, **shares)
        if max(expected, measured) > WARN_SHARE:
            get_logger().warning("window.stalls", run_id=run_id, window_items=state.window_items, **shares)


def _merged(writes: Sequence[Write]) -> list[Write]:
    """One write a stream, in order; a stream's events share the cause of its first ones."""
    merged: dict[str, Write] = {}
    for write in writes:
        first = merged.get(write.stream)
        merged[write.stream] = write if first is None else replace(first, messages=(*first.messages, *write.messages))
    return list(merged.values())


def _concerning(episode_id: str, entries: Sequence[Entry]) -> list[int]:
    """Versions of the entries that concern an episode, of a queue that is read for its past only."""
    desk = Desk()
    for entry in entries:
        desk.note(touched_by_fact(desk.state, entry.taken.fact))
        for decision in fold(desk.state, entry.taken, entry.decisions):
            desk.note(touched_by_decision(desk.state, decision))
        desk.close(entry)
    return desk.concerning.get(episode_id, [])


def _is_due(state: State, now_s: float) -> bool:
    deadline_s = state.next_deadline_s
    return deadline_s is not None and deadline_s <= now_s


def _write(stream: str, events: Sequence[Published]) -> Write:
    messages = tuple(event.message for event in events)
    cause: Cause | None = events[0].cause
    if cause is None:
        return Write(stream, events[0].expected_version, messages)
    return CausedWrite(stream, events[0].expected_version, messages, cause)
