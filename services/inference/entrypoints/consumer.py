"""Runs and policies from the bus into the sidecar's book, which is also kept in a private stream of its own.

The stream `inference.policies/<worker_id>` is the book: it is folded again at every start.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from forgerl.events.v1.gateway_pb2 import RunRemoved, RunResumed
from forgerl.events.v1.trainer_pb2 import PolicyPublished
from forgerl.inference.v1.records_pb2 import PolicyNoted, RunForgotten, RunTakenUp
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.inference.domain.policies import Policy, PolicyBook
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write

TOPICS = ("forgerl.trainer.policy.v1", "forgerl.gateway.run.v1")


def record_of(event: Event) -> Message | None:
    """What the book keeps of a published event; None for what doesn't concern it."""
    at = Timestamp()
    at.FromDatetime(event.time)
    match event.message:
        case PolicyPublished() as policy:
            return PolicyNoted(
                run_id=policy.run_id, step=policy.step, digest=policy.digest, uri=policy.uri, at=policy.published_at
            )
        case RunResumed() as run:
            return RunTakenUp(run_id=run.run_id, at=at)
        case RunRemoved() as run:
            return RunForgotten(run_id=run.run_id)
        case _:
            return None


def fold(book: PolicyBook, record: Message) -> PolicyBook:
    """The book after a record."""
    match record:
        case PolicyNoted() as noted:
            policy = Policy(noted.run_id, noted.step, noted.digest, noted.uri)
            return book.note(policy, _time(noted.at))
        case RunTakenUp() as run:
            return book.take_up(run.run_id, _time(run.at))
        case RunForgotten() as run:
            return book.forget(run.run_id)
        case _:
            return book


class BookKeeper:
    """Keeps one worker's book and tells `follow` of every change."""

    def __init__(self, store: EventStore, worker_id: str, follow: Callable[[PolicyBook], None]) -> None:
        self._store, self._follow = store, follow
        self._stream = f"inference.policies/{worker_id}"

    async def recall(self) -> None:
        """Follow what was known before this process started."""
        self._follow(await self._book())

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """Write down what concerns the book, and follow it at once: a repeat after a crash changes nothing."""
        records = [record for event in events if (record := record_of(event)) is not None]
        if not records:
            return []
        book = await self._book()
        for record in records:
            book = fold(book, record)
        self._follow(book)
        return [Write(self._stream, await self._store.version(self._stream), tuple(records))]

    async def _book(self) -> PolicyBook:
        book = PolicyBook()
        for event in await self._store.read(self._stream):
            book = fold(book, event.message)
        return book


def _time(at: Timestamp) -> datetime:
    return at.ToDatetime(tzinfo=UTC)
