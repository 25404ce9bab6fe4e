"""Episodes that were run elsewhere: checked when they're submitted, and sealed as what they are.

A span that names a policy of this run keeps its step; every other one counts as of no policy (step -1), so that it is
never taken for fresh. It refuses trajectories that training could not use, by node and field.
"""

import math
from collections.abc import Collection
from dataclasses import replace

from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2

from services.contract import trajectory as contract
from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput, Permanent

NO_STEP = -1
MAX_ANSWER_BYTES = 64 * 1024
_ENDS = (task_pb2.OUTCOME_COMPLETED, task_pb2.OUTCOME_AGENT_TIMEOUT, task_pb2.OUTCOME_CONTEXT_OVERFLOW)


async def check_recorded(given: episode_service_pb2.Submission, blobs: Blobs) -> None:
    """Raises InvalidInput."""
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
    try:
        trajectory = contract.decode(await blobs.get(recorded.trajectory))
    except (contract.MalformedTrajectory, Permanent) as error:
        raise InvalidInput("recorded.trajectory", str(error), "an Arrow file as data export writes it") from error
    sampled = contract.sampled_nodes(trajectory)
    if not sampled:
        raise InvalidInput("recorded.trajectory", "one without a sampled node", "one or more")
    for node in sampled:
        where = f"recorded.trajectory: node {node.node_id}"
        if not node.token_ids:
            raise InvalidInput(f"{where}: token_ids", "none", "one or more")
        if not all(math.isfinite(value) and value <= 1e-6 for value in node.logprobs):
            raise InvalidInput(f"{where}: logprobs", "one that is positive or not finite", "finite, 0 or less")
        if not node.temperature > 0:
            raise InvalidInput(f"{where}: temperature", node.temperature, "above 0, as it was sampled")


async def sealed_trajectory(
    episode_id: str, run_id: str, ref: task_pb2.RecordedEpisode, policies: Collection[str], blobs: Blobs
) -> contract.Trajectory:
    """The recorded trajectory under this episode's name. `policies`: digests that the run has published."""
    given = contract.decode(await blobs.get(ref.trajectory))
    nodes = tuple(
        replace(node, spans=tuple(_span(span, policies) for span in node.spans), infra=False) for node in given.nodes
    )
    return contract.Trajectory(episode_id, run_id, nodes)


def _span(span: contract.Span, policies: Collection[str]) -> contract.Span:
    return span if span.policy_digest in policies else replace(span, policy_step=NO_STEP)
