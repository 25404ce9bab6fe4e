"""Episodes that were run elsewhere: checked when they're submitted, and sealed as what they are.

A span that names a policy of this run keeps its step; every other one counts as of no policy (step -1), so that it is
never taken for fresh. It refuses trajectories that training could not use, by node and field.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2, record_pb2
from google.protobuf.message import Message
from numpy.typing import NDArray

from services.contract import trajectory as contract
from services.gateway.domain.sealing import seal_of
from services.gateway.folds import progress_stream
from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput, Permanent
from services.kernel.event_store import EventStore, Write

NO_STEP = -1
MAX_ANSWER_BYTES = 64 * 1024
# Rounding may leave a certain token a hair above zero.
MAX_LOGPROB = 1e-6
_ENDS = (task_pb2.OUTCOME_COMPLETED, task_pb2.OUTCOME_AGENT_TIMEOUT, task_pb2.OUTCOME_CONTEXT_OVERFLOW)


def recorded_stream(episode_id: str) -> str:
    """Private stream of an episode that was run elsewhere: how it will be sealed."""
    return f"gateway.recorded/{episode_id}"


class _Told(Protocol):
    @property
    def message(self) -> Message: ...


def seal_in(told: Sequence[_Told]) -> gateway_pb2.TrajectorySealed:
    """The seal that such a stream holds."""
    checked = told[0].message
    assert isinstance(checked, record_pb2.RecordedChecked)
    return checked.seal


class RecordedDesk:
    """Reads, checks and names trajectories that came with submissions."""

    def __init__(self, store: EventStore, blobs: Blobs) -> None:
        self._store, self._blobs = store, blobs

    async def policies(self, run_id: str) -> Collection[str]:
        """Digests of a run's policies so far."""
        progress = [event.message for event in await self._store.read(progress_stream(run_id))]
        return {seen.policy.digest for seen in progress if isinstance(seen, record_pb2.RunObserved)} - {""}

    async def check(self, given: Sequence[episode_service_pb2.Submission]) -> dict[str, Write]:
        """What is to be appended with each submission, by episode. Raises InvalidInput."""
        if not given:
            return {}
        policies = {run_id: await self.policies(run_id) for run_id in {one.run_id for one in given}}
        for one in given:
            _check_end(one)
        data = await asyncio.gather(*(self._data(one) for one in given))
        # One change of threads for all of them.
        checked = await asyncio.to_thread(lambda: [_checked(own) for own in data])
        return {
            one.episode_id: await self._write(one, trajectory, policies[one.run_id])
            for one, trajectory in zip(given, checked, strict=True)
        }

    async def seal(self, episode_id: str) -> gateway_pb2.TrajectorySealed:
        """How the episode is sealed."""
        return seal_in(await self._store.read(recorded_stream(episode_id), limit=1))

    async def _data(self, given: episode_service_pb2.Submission) -> bytes:
        try:
            return await self._blobs.get(given.recorded.trajectory)
        except Permanent as error:
            raise _unreadable(error) from error

    async def _write(
        self, given: episode_service_pb2.Submission, trajectory: contract.Trajectory, policies: Collection[str]
    ) -> Write:
        nodes = tuple(_node(node, policies) for node in trajectory.nodes)
        named = contract.Trajectory(given.episode_id, given.run_id, nodes)
        # A node that stays as it is is the same object: then this looks at no token.
        blob = given.recorded.trajectory
        if named != trajectory:
            blob = await self._blobs.put(await asyncio.to_thread(contract.encode, named), contract.MEDIA_TYPE)
        checked = record_pb2.RecordedChecked(seal=seal_of(named, blob))
        return Write(recorded_stream(given.episode_id), 0, (checked,))


def _check_end(given: episode_service_pb2.Submission) -> None:
    recorded = given.recorded
    if given.kind != task_pb2.EPISODE_KIND_TRAIN:
        raise InvalidInput("recorded", "with an evaluation", "training episodes: evaluations are run here")
    if recorded.outcome not in _ENDS:
        raise InvalidInput(
            "recorded.outcome", int(recorded.outcome), "completed, agent_timeout, context_overflow (1, 2, 3)"
        )
    if not (math.isfinite(recorded.agent_wall_s) and recorded.agent_wall_s >= 0):
        raise InvalidInput("recorded.agent_wall_s", recorded.agent_wall_s, "seconds, 0 or more")
    if len(recorded.answer.encode()) > MAX_ANSWER_BYTES:
        raise InvalidInput("recorded.answer", f"{len(recorded.answer.encode())} bytes", f"{MAX_ANSWER_BYTES} bytes")


def _unreadable(error: Exception) -> InvalidInput:
    return InvalidInput("recorded.trajectory", str(error), "an Arrow file as data export writes it")


def _checked(data: bytes) -> contract.Trajectory:
    try:
        trajectory = contract.view(data)
    except contract.MalformedTrajectory as error:
        raise _unreadable(error) from error
    _check_nodes(trajectory)
    return trajectory


def _check_nodes(trajectory: contract.Trajectory) -> None:
    sampled = contract.sampled_nodes(trajectory)
    if not sampled:
        raise InvalidInput("recorded.trajectory", "one without a sampled node", "one or more")
    # One look at all of them; where it finds something, each node is looked at, so that the first is named.
    suspect = not _usable(np.concatenate([np.asarray(node.logprobs) for node in sampled]))
    for node in sampled:
        where = f"recorded.trajectory: node {node.node_id}"
        if not node.token_ids:
            raise InvalidInput(f"{where}: token_ids", "none", "one or more")
        if suspect and not _usable(np.asarray(node.logprobs)):
            raise InvalidInput(f"{where}: logprobs", "one that is positive or not finite", "finite, 0 or less")
        if not node.temperature > 0:
            raise InvalidInput(f"{where}: temperature", node.temperature, "above 0, as it was sampled")


def _usable(logprobs_T: NDArray[np.floating]) -> bool:
    # The largest is not a number where any is not one.
    return logprobs_T.size == 0 or bool(logprobs_T.max() <= MAX_LOGPROB and logprobs_T.min() > -math.inf)


def _node(node: contract.Node, policies: Collection[str]) -> contract.Node:
    if not (node.spans or node.infra):
        return node
    spans = tuple(_span(span, policies) for span in node.spans)
    return node if spans == node.spans and not node.infra else replace(node, spans=spans, infra=False)


def _span(span: contract.Span, policies: Collection[str]) -> contract.Span:
    own = span.policy_digest in policies or span.policy_step == NO_STEP
    return span if own else replace(span, policy_step=NO_STEP)
