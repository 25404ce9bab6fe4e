"""The desk of runs and episodes: what users ask of the gateway, decided on the store's streams.

It refuses a second training run beside a running one, ids that mean something else, and episodes of unknown runs.
Agents' calls are in completions.py, what other services say in intake.py.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2, record_pb2
from forgerl.gateway.v1 import run_service_pb2 as run_api

from services.contract import run_spec
from services.environments.interface import MAX_PAYLOAD_BYTES
from services.gateway.domain.episodes import Episode
from services.gateway.domain.runs import Run
from services.gateway.folds import FLEET_STREAM, Batch, Folds, run_stream
from services.gateway.freeing import free_run
from services.gateway.sealer import Sealer
from services.gateway.sessions import episode_stream
from services.kernel.blobs import Blobs
from services.kernel.clock import Clock
from services.kernel.envelope import Cause
from services.kernel.errors import Conflict, InvalidInput, NotFound, Refused, Transient
from services.kernel.event_store import CausedWrite, EventStore, Write

_EPISODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,159}")
_CONFLICTS_IN_A_ROW = 10
_KINDS = (task_pb2.EPISODE_KIND_TRAIN, task_pb2.EPISODE_KIND_EVALUATION)


class IdTaken(Refused):
    """The id stands for something else."""


class BadSpec(InvalidInput):
    """A run file with one or more problems, each of which says field, given and allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("spec", "problems", "none")
        self.message = "\n".join(problems)
        self.args = (self.message,)


@dataclass(frozen=True, slots=True)
class Registries:
    """Names that a run file may use."""

    environments: Collection[str]
    agents: Collection[str]


class Desk:
    """Runs and episodes. `new_trace` gives the traceparent of a fresh root span with that name and subject."""

    def __init__(
        self, store: EventStore, folds: Folds, sealer: Sealer, known: Registries, new_trace: Callable[[str, str], str]
    ) -> None:
        self._store, self._folds, self._sealer, self._known = store, folds, sealer, known
        self._new_trace = new_trace

    async def create_run(self, run_id: str, spec: run_pb2.RunSpec) -> Run:
        """Begin a run; a repeat with the same spec is answered. Raises BadSpec, IdTaken, Refused."""
        problems = [
            *run_spec.check_run_id(run_id),
            *run_spec.check(spec, self._known.environments, self._known.agents),
        ]
        if problems:
            raise BadSpec(problems)
        resolved = run_spec.resolve(spec)

        async def decide(batch: Batch) -> None:
            existing = await batch.events(run_stream(run_id))
            if existing:
                created = existing[0].message
                if isinstance(created, gateway_pb2.RunCreated) and created.spec != resolved:
                    raise IdTaken(f"run_id: given {run_id!r}, which is a run with another spec; allowed a new id")
                return
            await self._claim(batch, run_id)
            await batch.add(run_stream(run_id), gateway_pb2.RunCreated(run_id=run_id, spec=resolved))

        await self._commit(decide, run_id)
        return await self._folds.run(run_id)

    async def stop_run(self, run_id: str) -> Run:
        """End a run's training now; a run that has ended is answered."""

        async def decide(batch: Batch) -> None:
            run = await self._folds.run(run_id, batch)
            if run.running:
                await batch.add_blind(run_stream(run_id), gateway_pb2.RunEnded(run_id=run_id, reason="stopped"))

        await self._commit(decide, run_id)
        return await self._folds.run(run_id)

    async def end_if_due(self, run_id: str, clock: Clock) -> None:
        """End a run that has reached its end, time included."""

        async def decide(batch: Batch) -> None:
            reason = (await self._folds.run(run_id, batch)).reached(clock.now())
            if reason:
                await batch.add_blind(run_stream(run_id), gateway_pb2.RunEnded(run_id=run_id, reason=reason))

        await self._commit(decide, run_id)

    async def resume_run(self, run_id: str, end: run_pb2.EndSpec) -> Run:
        """Take an ended run up again, with a later end. Raises BadSpec, Refused."""

        async def decide(batch: Batch) -> None:
            run = await self._folds.run(run_id, batch)
            if run.running and run.spec.end == end:
                return
            if run.running:
                raise Refused(
                    f"run {run_id}: given another end while it runs; allowed once it has ended, or been stopped"
                )
            if run.state == run_api.RUN_STATE_REMOVED:
                raise Refused(f"run {run_id}: given a removed one; allowed an ended one")
            spec = run_pb2.RunSpec()
            spec.CopyFrom(run.spec)
            spec.end.CopyFrom(end)
            problems = run_spec.check(spec, self._known.environments, self._known.agents)
            if end.HasField("steps") and end.steps <= run.steps:
                problems.append(f"end.steps: given {end.steps}; allowed above {run.steps}, which are done")
            if problems:
                raise BadSpec(problems)
            await self._claim(batch, run_id)
            await batch.add_blind(run_stream(run_id), gateway_pb2.RunResumed(run_id=run_id, end=end))

        await self._commit(decide, run_id)
        return await self._folds.run(run_id)

    async def remove_run(self, run_id: str, episode_ids: Collection[str], blobs: Blobs) -> tuple[int, int]:
        """Remove an ended run and free its trajectories and turns; number of blobs and bytes.

        A repeat frees what is left, here and, told again, with the other services.
        """

        async def decide(batch: Batch) -> None:
            run = await self._folds.run(run_id, batch)
            if run.running:
                raise Refused(f"run {run_id}: given a running one; allowed an ended one")
            await batch.add_blind(run_stream(run_id), gateway_pb2.RunRemoved(run_id=run_id))

        await self._commit(decide, run_id)
        return await free_run(self._store, blobs, run_id, episode_ids)

    async def submit(self, given: episode_service_pb2.Submission) -> bool:
        """Take an episode in; False when it was there. Raises InvalidInput, NotFound, Refused, IdTaken."""
        try:
            return (await self.submit_many([given]))[0]
        except Conflict:
            # Another replica took it meanwhile.
            return (await self.submit_many([given]))[0]

    async def submit_many(self, given: Sequence[episode_service_pb2.Submission]) -> list[bool]:
        """The same for several, in one commit: all or none. Raises Conflict, too."""
        events = {episode_stream(one.episode_id): _submitted(one) for one in given}
        if len(events) < len(given):
            raise Conflict("an episode stands twice in one batch")
        for one in given:
            _check_submission(one)
        known = await self._store.read_many(events)
        for stream, event in events.items():
            if known[stream] and known[stream][0].message != event:
                raise IdTaken(f"episode_id: given {event.episode_id!r}, which is another episode; allowed a new id")
        fresh = [one for one in given if not known[episode_stream(one.episode_id)]]
        for run_id in dict.fromkeys(one.run_id for one in fresh):
            run = await self._folds.run(run_id)
            for one in fresh:
                if one.run_id == run_id:
                    _check_run(run, one)
        checked = await self._sealer.recorded.check([one for one in fresh if one.HasField("recorded")])
        causes = [Cause(one.episode_id, "", self._new_trace("episode", one.episode_id)) for one in fresh]
        writes: list[Write] = []
        for one, cause in zip(fresh, causes, strict=True):
            stream = episode_stream(one.episode_id)
            writes.append(CausedWrite(stream, 0, (events[stream],), cause))
            if one.HasField("recorded"):
                own = checked[one.episode_id]
                writes.append(CausedWrite(own.stream, own.expected_version, own.messages, cause))
        await self._store.append(writes)
        return [not known[stream] for stream in events]

    async def recorded_seal(self, episode_id: str) -> gateway_pb2.TrajectorySealed:
        """How an episode that was run elsewhere is sealed, or will be."""
        return await self._sealer.recorded.seal(episode_id)

    async def cancel(self, episode_id: str, reason: str) -> Episode:
        """Call an episode off; one that no agent has begun is sealed at once. A repeat is answered."""

        async def decide(batch: Batch) -> None:
            episode = await self._folds.episode(episode_id, batch)
            if episode.cancelled or episode.sealed is not None:
                return
            cancelled = gateway_pb2.EpisodeCancelled(
                episode_id=episode_id, run_id=episode.submitted.run_id, reason=reason or "cancelled"
            )
            await batch.add(episode_stream(episode_id), cancelled)
            if not episode.started:
                await self._sealer.seal(batch, episode_id, "cancelled")

        await self._commit(decide, episode_id)
        return await self._folds.episode(episode_id)

    async def _claim(self, batch: Batch, run_id: str) -> None:
        claims = [past.message for past in await batch.events(FLEET_STREAM)]
        last = claims[-1] if claims else None
        if isinstance(last, record_pb2.TrainingClaimed) and last.run_id != run_id:
            try:
                holder = await self._folds.run(last.run_id)
            except NotFound:
                holder = None
            if holder is not None and holder.running:
                raise Refused(f"run {last.run_id} is still training; stop it first, or wait for its end")
        await batch.add(FLEET_STREAM, record_pb2.TrainingClaimed(run_id=run_id))

    async def _commit(self, decide: "Decide", subject: str) -> None:
        for _ in range(_CONFLICTS_IN_A_ROW):
            batch = self._folds.batch()
            await decide(batch)
            try:
                await self._store.append(batch.writes(), cause=Cause(subject, "", self._new_trace("desk", subject)))
            except Conflict:
                continue
            return
        raise Transient(f"{subject}: {_CONFLICTS_IN_A_ROW} conflicts in a row")


Decide = Callable[[Batch], Awaitable[None]]


def _check_submission(given: episode_service_pb2.Submission) -> None:
    if not _EPISODE_ID.fullmatch(given.episode_id):
        raise InvalidInput("episode_id", given.episode_id, "1..160 characters of letters, digits, . _ : and -")
    if given.kind not in _KINDS:
        raise InvalidInput("kind", int(given.kind), "EPISODE_KIND_TRAIN or EPISODE_KIND_EVALUATION")
    if given.kind == task_pb2.EPISODE_KIND_EVALUATION and not given.HasField("pinned_step"):
        raise InvalidInput("pinned_step", "nothing", "the policy step to evaluate")
    if not given.task.environment or not given.task.task_id:
        raise InvalidInput("task", "one without environment or task_id", "both")
    if len(given.task.payload) > MAX_PAYLOAD_BYTES:
        raise InvalidInput("task.payload", f"{len(given.task.payload)} bytes", f"{MAX_PAYLOAD_BYTES} at most")
    if given.task.split not in task_pb2.Split.values():
        raise InvalidInput("task.split", int(given.task.split), "SPLIT_TRAIN or SPLIT_HELDOUT")
    if given.kind == task_pb2.EPISODE_KIND_TRAIN and given.task.split == task_pb2.SPLIT_HELDOUT:
        raise InvalidInput("task.split", "SPLIT_HELDOUT", "SPLIT_TRAIN in a training episode")


def _check_run(run: Run, given: episode_service_pb2.Submission) -> None:
    if given.domain not in {domain.name for domain in run.spec.domains}:
        allowed = ", ".join(domain.name for domain in run.spec.domains)
        raise InvalidInput("domain", given.domain, allowed)
    training = given.kind == task_pb2.EPISODE_KIND_TRAIN
    if run.state == run_api.RUN_STATE_REMOVED or (training and not run.running):
        raise Refused(f"run {given.run_id}: given one that has ended; allowed a running one")


def _submitted(given: episode_service_pb2.Submission) -> gateway_pb2.EpisodeSubmitted:
    return gateway_pb2.EpisodeSubmitted(
        episode_id=given.episode_id,
        run_id=given.run_id,
        kind=given.kind,
        # A training episode that names no group is a group of its own.
        group_id=given.group_id or (given.episode_id if given.kind == task_pb2.EPISODE_KIND_TRAIN else ""),
        domain=given.domain,
        task=given.task,
        pinned_step=given.pinned_step if given.HasField("pinned_step") else None,
        recorded=given.recorded if given.HasField("recorded") else None,
    )
