"""Open episodes in memory: message tree, version of its stream, and the calls in flight.

A session is a cache: the stream is the truth, and an append that finds it moved reads again. It refuses to outlive the
seal, and idle sessions beyond a bound are dropped, oldest use first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from forgerl.common.v1 import run_pb2
from forgerl.events.v1 import gateway_pb2

from services.gateway import records
from services.gateway.domain.calls import Sampling
from services.gateway.domain.tree import TRUNCATED, MessageTree, Turn
from services.gateway.live import LiveCall
from services.gateway.ports import EpisodeFacts, EpisodeSealed
from services.kernel.blobs import Blobs
from services.kernel.envelope import Cause, Event
from services.kernel.errors import Conflict, NotFound, Transient
from services.kernel.event_store import EventStore, Write

RunSpecOf = Callable[[str], Awaitable[run_pb2.RunSpec]]
_CONFLICTS_IN_A_ROW = 20


def turns_stream(episode_id: str) -> str:
    """Private stream of an episode's turns."""
    return f"gateway.turns/{episode_id}"


def episode_stream(episode_id: str) -> str:
    """Published stream of an episode."""
    return f"gateway.episode/{episode_id}"


@dataclass(slots=True)
class Session:
    """One open episode. `undelivered`: recorded calls whose answer nobody received."""

    facts: EpisodeFacts
    tree: MessageTree = field(default_factory=MessageTree)
    version: int = 0
    live: dict[str, LiveCall] = field(default_factory=dict[str, LiveCall])
    undelivered: set[str] = field(default_factory=set[str])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions:
    """All open episodes of this replica."""

    def __init__(self, store: EventStore, blobs: Blobs, spec_of: RunSpecOf, capacity: int) -> None:
        self._store, self._blobs, self._spec_of, self._capacity = store, blobs, spec_of, capacity
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._loading = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._open)

    async def get(self, episode_id: str) -> Session:
        """The session of an episode that may still be called. Raises NotFound, EpisodeSealed."""
        session = self._open.get(episode_id)
        if session is None:
            async with self._loading:
                session = self._open.get(episode_id) or await self._load(episode_id)
                self._open[episode_id] = session
        self._open.move_to_end(episode_id)
        self._evict()
        self.refuse_closed(session)
        return session

    def peek(self, episode_id: str) -> Session | None:
        """The session, when it is in memory."""
        return self._open.get(episode_id)

    def drop(self, episode_id: str) -> None:
        """The episode is sealed: forget it, and end what is in flight."""
        session = self._open.pop(episode_id, None)
        if session is not None:
            session.tree.close("sealed")
            for live in list(session.live.values()):
                live.abandon()

    def refuse_closed(self, session: Session) -> None:
        """Raises EpisodeSealed."""
        if session.tree.closed:
            self._open.pop(session.facts.episode_id, None)
            raise EpisodeSealed(f"episode {session.facts.episode_id} is over: no call is accepted any more")

    async def refresh(self, session: Session) -> None:
        """Take in what other replicas recorded."""
        stream = turns_stream(session.facts.episode_id)
        events = await self._store.read(stream, after=session.version)
        await records.fold(session.tree, events, self._blobs)
        session.version += len(events)

    async def record(self, session: Session, turn: Turn) -> int:
        """Append a turn, durably; answers its sampled node.

        A key that was recorded meanwhile keeps its first sample. Raises EpisodeSealed.
        """
        stream = turns_stream(session.facts.episode_id)
        cause = Cause(session.facts.episode_id, turn.mark.call_id, session.facts.traceparent)
        async with session.lock:
            for _ in range(_CONFLICTS_IN_A_ROW):
                self.refuse_closed(session)
                known = session.tree.with_key(turn.mark.idempotency_key) if turn.mark.idempotency_key else None
                if known is not None and known.node_id != turn.replaces:
                    return known.node_id
                turn = session.tree.settle(_replaceable(session.tree, turn))
                record = await records.to_record(turn, self._blobs)
                try:
                    await self._store.append([Write(stream, session.version, (record,))], cause=cause)
                except Conflict:
                    await self.refresh(session)
                    continue
                session.version += 1
                # Folded from the record, so that this replica's numbers are those that every other one reads.
                return session.tree.apply(await records.to_turn(record, self._blobs))
        raise Transient(f"{stream}: {_CONFLICTS_IN_A_ROW} conflicts in a row")

    async def _load(self, episode_id: str) -> Session:
        events = await self._store.read(episode_stream(episode_id))
        submitted = next((e for e in events if isinstance(e.message, gateway_pb2.EpisodeSubmitted)), None)
        if submitted is None:
            raise NotFound(f"episode {episode_id!r} was never submitted here")
        session = Session(await self._facts(submitted))
        if any(isinstance(event.message, gateway_pb2.TrajectorySealed) for event in events):
            session.tree.close("sealed")
        else:
            await self.refresh(session)
        return session

    async def _facts(self, event: Event) -> EpisodeFacts:
        message = event.message
        assert isinstance(message, gateway_pb2.EpisodeSubmitted)
        sampling = (await self._spec_of(message.run_id)).sampling
        return EpisodeFacts(
            episode_id=message.episode_id,
            run_id=message.run_id,
            group_id=message.group_id,
            pinned_step=message.pinned_step if message.HasField("pinned_step") else None,
            traceparent=event.cause.traceparent,
            defaults=Sampling(sampling.temperature, sampling.top_p, sampling.max_tokens),
        )

    def _evict(self) -> None:
        idle = [key for key, session in self._open.items() if not session.live and not session.undelivered]
        for key in idle[: max(0, len(self._open) - self._capacity)]:
            del self._open[key]


def _replaceable(tree: MessageTree, turn: Turn) -> Turn:
    # Somebody went on from the truncated turn meanwhile: it has to stay, and this one stands beside it.
    if turn.replaces is None:
        return turn
    node = tree.nodes[turn.replaces]
    truncated = node.sample is not None and node.sample.finish_reason == TRUNCATED
    if truncated and not tree.has_children(node.node_id):
        return turn
    return replace(turn, replaces=None, parent_id=node.parent_id)
