"""What pruning would free at most, read off the stores; and what gateway and rollout say that they have freed.

It refuses to decide and to delete: the scheduler says which episodes are pruned, and whoever put a blob frees it.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import obstore
from forgerl.events.v1.gateway_pb2 import EpisodeSubmitted, TrajectorySealed
from forgerl.events.v1.rollout_pb2 import EpisodeFinished
from forgerl.gateway.v1.record_pb2 import EpisodesFreed, RecordedChecked, TurnRecorded
from forgerl.rollout.v1.journal_pb2 import TextsFreed, ToolsAnswered
from obstore.store import from_url

from services.cli.pool.reading import Pool

_AT_ONCE = 200
_STREAMS = {
    "gateway": ("gateway.episode/", "gateway.turns/", "gateway.recorded/"),
    "rollout": ("rollout.episode/", "rollout.turns/"),
}


@dataclass(frozen=True, slots=True)
class Named:
    """Blobs that some episodes name and that are there, as they lie in the store. Others may name them, too."""

    blobs: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Freed:
    """What was freed for some events. `pending`: how often a service has yet to say so."""

    blobs: int
    size_bytes: int
    kept_blobs: int
    pending: int


async def named_by(pool: Pool, blob_url: str, episode_ids: Sequence[str]) -> Named:
    """Blobs of these episodes. Raises UsageError for a store that isn't there."""
    uris: set[str] = set()
    for service, prefixes in _STREAMS.items():
        async with pool.store(service) as store:
            for first in range(0, len(episode_ids), _AT_ONCE):
                some = episode_ids[first : first + _AT_ONCE]
                streams = await store.read_many([prefix + episode_id for episode_id in some for prefix in prefixes])
                uris.update(_uri(event.message) for events in streams.values() for event in events)
    sizes = await _sizes(blob_url, [pool.located(uri) for uri in sorted(uris - {""})])
    return Named(len(sizes), sum(sizes))


async def freed_for(pool: Pool, run_id: str, event_ids: Collection[str]) -> Freed:
    """What was recorded since of these events."""
    async with pool.store("gateway") as store:
        told = [event.message for event in await store.read(f"gateway.freed/{run_id}")]
    ours = [one for one in told if isinstance(one, EpisodesFreed) and one.event_id in event_ids]
    async with pool.store("rollout") as store:
        told = [event.message for event in await store.read(f"rollout.run/{run_id}")]
    texts = [one for one in told if isinstance(one, TextsFreed) and one.event_id in event_ids]
    return Freed(
        blobs=sum(one.blobs for one in ours) + sum(one.texts for one in texts),
        size_bytes=sum(one.freed_bytes for one in (*ours, *texts)),
        kept_blobs=sum(one.kept_blobs for one in ours) + sum(one.kept_texts for one in texts),
        pending=2 * len(event_ids) - len(ours) - len(texts),
    )


def _uri(message: Any) -> str:
    match message:
        case TurnRecorded():
            return message.tokens_blob.uri
        case EpisodeSubmitted():
            return message.recorded.trajectory.uri
        case RecordedChecked():
            return message.seal.trajectory.uri
        case TrajectorySealed():
            return message.trajectory.uri
        case EpisodeFinished():
            return message.answer_blob.uri
        case ToolsAnswered():
            return message.messages.uri
        case _:
            return ""


async def _sizes(blob_url: str, uris: Sequence[str]) -> list[int]:
    """Sizes of those that are there."""
    store, root = from_url(blob_url), blob_url.rstrip("/")
    found: list[int] = []

    async def size(uri: str) -> None:
        try:
            found.append((await obstore.head_async(store, uri.removeprefix(f"{root}/")))["size"])
        except FileNotFoundError:
            return

    for first in range(0, len(uris), _AT_ONCE):
        await asyncio.gather(*map(size, uris[first : first + _AT_ONCE]))
    return found
