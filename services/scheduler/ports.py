"""What the scheduler's application needs from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from forgerl.common.v1.blob_pb2 import BlobRef
from google.protobuf.message import Message

from services.kernel.envelope import Cause
from services.kernel.event_store import Write
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.facts import Input, TrainedEpisode
from services.scheduler.domain.state import State


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a run's queue, as recorded: the input, what was decided, and which replica wrote it."""

    taken: Input
    decisions: tuple[Decision, ...]
    writer: str


@dataclass(frozen=True, slots=True)
class Published:
    """An event for everybody; without a cause of its own it is caused by what the inbox is handling."""

    message: Message
    expected_version: int
    cause: Cause | None = None


class Journal(Protocol):
    """The recorded queues, one stream a run."""

    async def run_ids(self) -> list[str]:
        """Runs that have a queue."""
        ...

    async def read(self, run_id: str, after: int, limit: int | None = None) -> list[Entry]:
        """Entries with versions above `after`, in order."""
        ...

    async def run_of(self, episode_id: str) -> str | None:
        """The run in whose name the episode was admitted or revoked; None: it never was."""
        ...

    def write(self, run_id: str, expected_version: int, entries: Sequence[Entry]) -> Write:
        """The write that appends entries to a queue."""
        ...

    async def commit(self, writes: Sequence[Write]) -> None:
        """Append everything or nothing. Raises Conflict."""
        ...

    async def appended(self, timeout_s: float) -> None:
        """Wait until something was appended by this process, at most so long."""
        ...


class Publisher(Protocol):
    """Turns decisions into events for the others."""

    async def events(self, run_id: str, state: State, decision: Decision, event_id: str) -> list[Published]:
        """Events of a decision that `state` does not show yet; a batch's manifest is written before this returns."""
        ...

    def stream_of(self, message: Message) -> str:
        """The stream that an event belongs to."""
        ...

    async def remove(self, run_id: str) -> None:
        """Free the blobs that this service owns of the run; may be repeated."""
        ...


class Reports(Protocol):
    """What the trainer says about a step."""

    async def episodes(self, report: BlobRef) -> tuple[TrainedEpisode, ...]:
        """What was done with each episode. Raises Permanent when the report can't be read."""
        ...
