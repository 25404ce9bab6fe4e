"""Reads the services' own event stores after a run and says what became of every episode.

Only for a stack on this machine with SQLite stores. Refuses to trust any service's own totals: it counts the events.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.trainer.v1 import report_pb2
from google.protobuf.message import Message

from services.cli.private_messages import know_private_messages
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore

_PAGE = 1000
_MODULES = (gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)


@dataclass(slots=True)
class Fates:
    """Ids of episodes by what an event says of them; counts where an event must not repeat."""

    submitted: set[str] = field(default_factory=set)
    evaluations: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)
    finished: set[str] = field(default_factory=set)
    sealed: Counter[str] = field(default_factory=Counter)
    scored: Counter[str] = field(default_factory=Counter)
    trained: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Audit:
    """`lost`: an episode that a service took and that never arrived at the next one. `duplicated`: trained, ended,
    sealed or scored more than once. `unused`: submitted and rightly never trained, since the run had ended.
    """

    submitted: int
    evaluations: int
    trained: int
    dropped: int
    unused: int
    lost: dict[str, str]
    duplicated: dict[str, str]


async def audit(folder: Path, run_id: str) -> Audit:
    """`folder`: the instance's."""
    know_private_messages()
    fates = Fates()
    for service in ("gateway", "scheduler", "rollout", "reward", "trainer"):
        store = EventStore.open(
            f"sqlite:///{folder}/stores/{service}.db", Catalogue.from_modules(_MODULES), SystemClock()
        )
        try:
            async for message in _messages(store):
                if getattr(message, "run_id", None) != run_id:
                    continue
                _learn(fates, message)
                if isinstance(message, trainer_pb2.StepCompleted) and message.HasField("report"):
                    blobs = Blobs.open(f"file://{folder}/blobs")
                    _learn_report(fates, report_pb2.StepReport.FromString(await blobs.get(message.report)))
        finally:
            await store.close()
    return judge(fates)


async def _messages(store: EventStore) -> AsyncIterator[Message]:
    after = 0
    while page := await store.notifications(after, _PAGE):
        for position, event in page:
            yield event.message
            after = position


def _learn(fates: Fates, message: Message) -> None:
    match message:
        case gateway_pb2.EpisodeSubmitted():
            held_out = message.HasField("pinned_step")
            (fates.evaluations if held_out else fates.submitted).add(message.episode_id)
        case gateway_pb2.EpisodeCancelled():
            fates.cancelled.add(message.episode_id)
        case gateway_pb2.TrajectorySealed():
            fates.sealed[message.episode_id] += 1
        case scheduler_pb2.EpisodeAdmitted():
            fates.admitted.add(message.episode_id)
        case scheduler_pb2.EpisodeRevoked():
            fates.revoked.add(message.episode_id)
        case scheduler_pb2.SampleDropped():
            fates.dropped.update(message.episode_ids)
        case rollout_pb2.EpisodeFinished():
            fates.finished.add(message.episode_id)
            fates.ended[message.episode_id] += 1
        case rollout_pb2.EpisodeFailed():
            fates.ended[message.episode_id] += 1
        case reward_pb2.EpisodeScored() | reward_pb2.ScoringFailed():
            fates.scored[message.episode_id] += 1
        case _:
            pass


def _learn_report(fates: Fates, report: report_pb2.StepReport) -> None:
    for episode in report.episodes:
        if episode.trained:
            fates.trained[episode.episode_id] += 1
        else:
            fates.left_out.add(episode.episode_id)


def judge(fates: Fates) -> Audit:
    """Every episode has one fate, and every hand-over arrived."""
    everything = fates.submitted | fates.evaluations
    given_up = fates.cancelled | fates.revoked
    lost: dict[str, str] = {}
    _note(lost, fates.admitted - given_up - fates.ended.keys(), "admitted, never ended")
    _note(lost, fates.ended.keys() - fates.sealed.keys(), "ended, never sealed")
    # What ended after it had been given up is recorded, and needs no score.
    _note(lost, fates.finished - fates.scored.keys() - given_up, "finished, never scored")
    used = fates.trained.keys() | fates.left_out | fates.dropped.keys()
    done = {episode for episode in fates.scored if episode in fates.submitted}
    _note(lost, done - used - given_up, "scored, neither trained nor dropped")
    _note(lost, (fates.ended.keys() | used) - everything, "unknown to the gateway")
    twice: dict[str, str] = {}
    for counts, what in (
        (fates.trained, "trained"),
        (fates.sealed, "sealed"),
        (fates.scored, "scored"),
        (fates.ended, "ended"),
    ):
        _note(twice, (episode for episode, count in counts.items() if count > 1), f"{what} more than once")
    _note(twice, fates.trained.keys() & fates.dropped.keys(), "trained and dropped")
    _note(twice, fates.trained.keys() & fates.evaluations, "an evaluation, trained")
    return Audit(
        submitted=len(fates.submitted),
        evaluations=len(fates.evaluations),
        trained=len(fates.trained),
        dropped=len(fates.dropped),
        unused=len(fates.submitted - used),
        lost=lost,
        duplicated=twice,
    )


def _note(found: dict[str, str], episodes: Iterable[str], what: str) -> None:
    for episode in episodes:
        found.setdefault(episode, what)
