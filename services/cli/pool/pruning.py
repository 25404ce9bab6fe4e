"""Which blobs retention frees: trajectories, and turns too large for an event, of episodes that closed long ago.

A blob that anything else refers to stays: blobs are named by their content, so two episodes may share one. It refuses
to free what is in flight, or in a batch that isn't trained; what is recorded inside events stays, and so do answers.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import obstore
from forgerl.events.v1.gateway_pb2 import EpisodeSubmitted
from forgerl.gateway.v1.record_pb2 import TurnRecorded
from obstore.store import from_url

from services.cli.pool.index import EpisodeRow, PoolIndex
from services.cli.pool.reading import Pool
from services.kernel.event_store import EventStore

_AT_ONCE, _PAGE = 200, 5_000
_OWN = ("gateway.episode/", "gateway.turns/")


@dataclass(frozen=True, slots=True)
class Part:
    """Some episodes of a plan. `unrecorded`: those of which the scheduler wasn't told yet."""

    unrecorded: list[str]
    uris: list[str]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Episodes with bytes to free. `sizes`: of each blob that is there, by place. `uris`: the trajectory comes last."""

    steps: int
    last_step: int
    episodes: list[EpisodeRow] = field(default_factory=list[EpisodeRow])
    uris: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    kept_by_others: int = 0

    @property
    def blobs(self) -> int:
        """How many are freed."""
        return len(self.sizes)

    @property
    def size_bytes(self) -> int:
        """As they lie in the blob store."""
        return sum(self.sizes.values())

    def parts(self, episodes: int) -> Iterator[Part]:
        """The plan, so many episodes at a time."""
        for first in range(0, len(self.episodes), episodes):
            rows = self.episodes[first : first + episodes]
            uris = list(dict.fromkeys(uri for row in rows for uri in self.uris[row.episode_id]))
            unrecorded = [row.episode_id for row in rows if row.pruned_at_s is None]
            yield Part(unrecorded, uris, sum(self.sizes[uri] for uri in uris))


def old_episodes(index: PoolIndex, keep_steps: int) -> list[EpisodeRow]:
    """Episodes that were trained, dropped or evaluated `keep_steps` steps ago, or longer."""
    last = index.steps - keep_steps
    closed = ((row, index.closed_step(row)) for row in index.episodes.values())
    return [row for row, step in closed if step is not None and step <= last]


async def plan_pruning(pool: Pool, blob_url: str, run_id: str, keep_steps: int) -> Plan:
    """What `data prune` frees. Raises UsageError for an unknown run or a store that isn't there."""
    index = await pool.index(run_id, reports=False)
    sizes = _Sizes(blob_url)
    rows = old_episodes(index, keep_steps)
    # While a trajectory is there, an earlier pruning was cut short: it goes last.
    there = await sizes.of([_trajectory(pool, row) for row in rows if row.pruned_at_s is not None])
    rows = [row for row in rows if row.pruned_at_s is None or _trajectory(pool, row) in there]
    async with pool.store("gateway") as store:
        uris = await _blobs_of(pool, store, rows)
        wanted = {uri for some in uris.values() for uri in some}
        kept = await _kept(pool, store, wanted, {row.episode_id for row in rows})
    found = await sizes.of(sorted(wanted - kept))
    left = {name: [uri for uri in some if uri in found] for name, some in uris.items()}
    return Plan(
        steps=index.steps,
        last_step=index.steps - keep_steps,
        episodes=[row for row in rows if left[row.episode_id]],
        uris=left,
        sizes=found,
        kept_by_others=len(kept),
    )


def _trajectory(pool: Pool, row: EpisodeRow) -> str:
    return pool.located(row.trajectory.uri) if row.trajectory is not None else ""


async def _blobs_of(pool: Pool, store: EventStore, rows: Sequence[EpisodeRow]) -> dict[str, list[str]]:
    """Blobs of each episode, its trajectory last."""
    found = await _gateways(pool, store, [row.episode_id for row in rows])
    return {
        row.episode_id: [
            *(uri for uri in found[row.episode_id] if uri != _trajectory(pool, row)),
            *filter(None, [_trajectory(pool, row)]),
        ]
        for row in rows
    }


async def _gateways(pool: Pool, store: EventStore, episode_ids: Sequence[str]) -> dict[str, list[str]]:
    """Blobs that the gateway's own streams name: large turns, and what was submitted as run elsewhere."""
    found: dict[str, list[str]] = {episode_id: [] for episode_id in episode_ids}
    for first in range(0, len(episode_ids), _AT_ONCE):
        some = episode_ids[first : first + _AT_ONCE]
        streams = await store.read_many([prefix + episode_id for episode_id in some for prefix in _OWN])
        for stream, events in streams.items():
            named = [_named(event.message) for event in events]
            found[stream.partition("/")[2]] += [pool.located(uri) for uri in named if uri]
    return {episode_id: list(dict.fromkeys(uris)) for episode_id, uris in found.items()}


def _named(message: Any) -> str:
    match message:
        case TurnRecorded():
            return message.tokens_blob.uri
        case EpisodeSubmitted():
            return message.recorded.trajectory.uri
        case _:
            return ""


async def _kept(pool: Pool, store: EventStore, wanted: set[str], pruned: set[str]) -> set[str]:
    """Which of the wanted blobs an episode refers to that isn't among the pruned, of any run."""
    kept: set[str] = set()
    sealed: set[str] = set()
    for run_id in await pool.runs() if wanted else ():
        for row in (await pool.index(run_id, reports=False)).episodes.values():
            uri = _trajectory(pool, row)
            if row.episode_id in pruned:
                sealed.add(uri)
            elif row.readable and uri in wanted:
                kept.add(uri)
    # A sealed trajectory may have been submitted anew as recorded; it is no turn, since it names its episode.
    kinds = [EpisodeSubmitted, TurnRecorded] if wanted - sealed else [EpisodeSubmitted]
    after = 0
    while page := await store.notifications(after, _PAGE, [kind.DESCRIPTOR.full_name for kind in kinds]):
        after = page[-1][0]
        others = (_named(event.message) for _, event in page if event.key not in pruned)
        kept |= wanted.intersection(pool.located(uri) for uri in others if uri)
    return kept


class _Sizes:
    """Sizes of blobs as they lie in the store."""

    def __init__(self, blob_url: str) -> None:
        self._store, self._root = from_url(blob_url), blob_url.rstrip("/")

    async def of(self, uris: Sequence[str]) -> dict[str, int]:
        """By place, of those that are there."""
        found: dict[str, int] = {}
        for first in range(0, len(uris), _AT_ONCE):
            some = uris[first : first + _AT_ONCE]
            found |= zip(some, await asyncio.gather(*map(self._size, some)), strict=True)
        return {uri: size for uri, size in found.items() if size >= 0}

    async def _size(self, uri: str) -> int:
        try:
            return (await obstore.head_async(self._store, uri.removeprefix(f"{self._root}/")))["size"]
        except FileNotFoundError:
            return -1
