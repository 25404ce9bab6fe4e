"""The journal on the event store: the published stream of an episode, and the private one of what its tools answered.

It refuses to write an end twice: an append that finds one written counts as done.
"""

from dataclasses import dataclass, field

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.common.v1.task_pb2 import Outcome as OutcomeNumber
from forgerl.events.v1 import rollout_pb2
from forgerl.rollout.v1 import journal_pb2
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.kernel.clock import Clock
from services.kernel.envelope import Cause
from services.kernel.errors import Conflict
from services.kernel.event_store import CausedWrite, EventStore, Write
from services.kernel.telemetry import current_traceparent
from services.rollout.adapters.commits import CommonCommits
from services.rollout.domain.episode import TRAINABLE, Blob, Ending, EpisodeStart, Text, TurnServed

LINGER_S = 0.25
ENDS = (rollout_pb2.EpisodeFinished, rollout_pb2.EpisodeFailed)


def published_stream(episode_id: str) -> str:
    """The stream that other services read."""
    return f"rollout.episode/{episode_id}"


def turns_stream(episode_id: str) -> str:
    """The stream of what tools answered; private."""
    return f"rollout.turns/{episode_id}"


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """Implements `ports.Journal`."""

    store: EventStore
    clock: Clock
    _commits: CommonCommits = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_commits", CommonCommits(self.store))

    async def record_started(self, start: EpisodeStart, agent: str) -> None:
        """EpisodeStarted as version 1; a repeat finds it there."""
        try:
            await self._publish(start, 0, self._start_message(start, agent))
        except Conflict:
            return

    async def record_ended(self, start: EpisodeStart, ending: Ending) -> None:
        """EpisodeFinished or EpisodeFailed, whichever is first; also where the start was never written."""
        stream = published_stream(ending.episode_id)
        events = await self.store.read(stream)
        while not any(isinstance(event.message, ENDS) for event in events):
            try:
                await self._publish(start, len(events), self._end_message(ending))
            except Conflict:
                events = await self.store.read(stream)
            else:
                return

    async def record_elsewhere(self, start: EpisodeStart, ending: Ending) -> None:
        """The end alone; an end that is written already stands."""
        try:
            # Nobody waits for one of these: in company they are fewer commits here, and fewer records' batches beyond.
            await self._commits.append(self._write(start, 0, (self._end_message(ending),)), LINGER_S)
        except Conflict:
            await self.record_ended(start, ending)

    async def turns(self, episode_id: str) -> dict[int, TurnServed]:
        """By number; the first record of a turn stands."""
        found: dict[int, TurnServed] = {}
        for event in await self.store.read(turns_stream(episode_id)):
            if isinstance(event.message, journal_pb2.ToolsAnswered):
                found.setdefault(event.message.turn, served_from(event.message))
        return found

    async def record_turn(self, episode_id: str, turn: int, served: TurnServed) -> None:
        """Append; the caller is the only one who writes, and if there's a rival its record of the turn is as good."""
        stream = turns_stream(episode_id)
        message = journal_pb2.ToolsAnswered(
            episode_id=episode_id,
            turn=turn,
            messages_json=served.messages.inline,
            messages=blob_ref(served.messages.blob),
            agent_s=served.agent_s,
            tool_calls=served.tool_calls,
            failed_tool_calls=served.failed_tool_calls,
        )
        await self.store.append([Write(stream, await self.store.version(stream), (message,))])

    async def _publish(self, start: EpisodeStart, expected_version: int, message: Message) -> None:
        await self._commits.append(self._write(start, expected_version, (message,)))

    def _write(self, start: EpisodeStart, expected_version: int, messages: tuple[Message, ...]) -> CausedWrite:
        return CausedWrite(published_stream(start.episode_id), expected_version, messages, cause_of(start))

    def _start_message(self, start: EpisodeStart, agent: str) -> Message:
        return rollout_pb2.EpisodeStarted(
            episode_id=start.episode_id, run_id=start.run_id, agent=agent, started_at=self._now()
        )

    def _end_message(self, ending: Ending) -> Message:
        outcome = OutcomeNumber.Name(ending.outcome)
        if ending.outcome not in TRAINABLE:
            return rollout_pb2.EpisodeFailed(
                episode_id=ending.episode_id,
                run_id=ending.run_id,
                outcome=outcome,
                detail=ending.detail,
                finished_at=self._now(),
            )
        return rollout_pb2.EpisodeFinished(
            episode_id=ending.episode_id,
            run_id=ending.run_id,
            outcome=outcome,
            answer=ending.answer.inline,
            answer_blob=blob_ref(ending.answer.blob),
            agent_wall_s=ending.agent_wall_s,
            tool_calls=ending.tool_calls,
            failed_tool_calls=ending.failed_tool_calls,
            finished_at=self._now(),
        )

    def _now(self) -> Timestamp:
        stamp = Timestamp()
        stamp.FromDatetime(self.clock.now())
        return stamp


def cause_of(start: EpisodeStart) -> Cause:
    """Why an episode's events were written: its admission, under the span in force."""
    return Cause(
        start.correlation_id or start.episode_id, start.causation_id, current_traceparent() or start.traceparent
    )


def blob_ref(blob: Blob | None) -> BlobRef | None:
    """The wire's form of a pointer."""
    if blob is None:
        return None
    return BlobRef(uri=blob.uri, sha256=blob.sha256, size_bytes=blob.size_bytes, media_type=blob.media_type)


def served_from(message: journal_pb2.ToolsAnswered) -> TurnServed:
    """A turn as it was recorded."""
    blob = message.messages
    pointer = Blob(blob.uri, blob.sha256, blob.size_bytes, blob.media_type) if blob.uri else None
    text = Text(message.messages_json, pointer)
    return TurnServed(text, message.agent_s, message.tool_calls, message.failed_tool_calls)
