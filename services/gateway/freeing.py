"""Which blobs go with a run: trajectories, sealed or as they were recorded elsewhere, and turns too large for an event.

A blob that an episode of another run refers to stays until that run is removed, too: blobs are named by their content,
so two runs may share one. It refuses blobs of other services: whoever put them frees them, told by RunRemoved.
"""

from collections.abc import Collection

from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import record_pb2
from google.protobuf.message import Message

from services.gateway.recorded import recorded_stream
from services.gateway.sessions import episode_stream, turns_stream
from services.kernel.blobs import Blobs
from services.kernel.event_store import EventStore

_EPISODES_AT_ONCE = 20
_PAGE = 500
_TRAJECTORIES = (gateway_pb2.EpisodeSubmitted, gateway_pb2.TrajectorySealed, record_pb2.RecordedChecked)
_TURNS = (record_pb2.TurnRecorded,)


async def free_run(store: EventStore, blobs: Blobs, episode_ids: Collection[str]) -> tuple[int, int]:
    """Free what only these episodes' removed run refers to; number of blobs and bytes. May be repeated."""
    trajectories, turns = await _named_by(store, list(episode_ids))
    kept = await _kept(store, trajectories, _TRAJECTORIES) | await _kept(store, turns, _TURNS)
    count, size = 0, 0
    for uri in sorted((trajectories | turns) - kept):
        freed = await blobs.delete(uri)
        count, size = count + freed[0], size + freed[1]
    return count, size


async def _named_by(store: EventStore, episode_ids: list[str]) -> tuple[set[str], set[str]]:
    """Trajectories and large turns of these episodes."""
    trajectories, turns = set[str](), set[str]()
    for first in range(0, len(episode_ids), _EPISODES_AT_ONCE):
        some = episode_ids[first : first + _EPISODES_AT_ONCE]
        streams = await store.read_many(
            [of(one) for one in some for of in (episode_stream, turns_stream, recorded_stream)]
        )
        for event in (event for events in streams.values() for event in events):
            (turns if isinstance(event.message, _TURNS) else trajectories).add(_named(event.message))
    return trajectories - {""}, turns - {""}


async def _kept(store: EventStore, wanted: set[str], kinds: Collection[type[Message]]) -> set[str]:
    """Which of the wanted an event of these kinds names, of an episode whose run isn't removed."""
    if not wanted:
        return set()
    runs, episodes, kept = await _removed(store), set[str](), set[str]()
    after = 0
    types = {kind.DESCRIPTOR.full_name for kind in (*kinds, gateway_pb2.EpisodeSubmitted)}
    while page := await store.notifications(after, _PAGE, sorted(types)):
        after = page[-1][0]
        for _, event in page:
            # An episode's submission is committed before, or with, everything else that is said of it.
            if isinstance(event.message, gateway_pb2.EpisodeSubmitted) and event.message.run_id in runs:
                episodes.add(event.key)
            if event.key not in episodes and (uri := _named(event.message)) in wanted:
                kept.add(uri)
    return kept


async def _removed(store: EventStore) -> set[str]:
    """Runs that are removed: nothing that their episodes name is asked for again."""
    runs, after = set[str](), 0
    while page := await store.notifications(after, _PAGE, [gateway_pb2.RunRemoved.DESCRIPTOR.full_name]):
        after = page[-1][0]
        runs |= {event.key for _, event in page}
    return runs


def _named(message: Message) -> str:
    match message:
        case gateway_pb2.EpisodeSubmitted():
            return message.recorded.trajectory.uri
        case gateway_pb2.TrajectorySealed():
            return message.trajectory.uri
        case record_pb2.RecordedChecked():
            return message.seal.trajectory.uri
        case record_pb2.TurnRecorded():
            return message.tokens_blob.uri
        case _:
            return ""
