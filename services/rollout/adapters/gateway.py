"""The gateway by gRPC: which task an episode is, and a key for its agent. It refuses to wait beyond a deadline."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from forgerl.common.v1.task_pb2 import SPLIT_HELDOUT
from forgerl.gateway.v1 import episode_service_pb2 as wire

from services.environments.interface import Task
from services.kernel.errors import Refused
from services.kernel.rpc import to_error
from services.rollout.ports import Brief, Credential, EpisodeSealed, Recorded

if TYPE_CHECKING:
    from forgerl.gateway.v1.episode_service_pb2_grpc import EpisodeServiceAsyncStub

DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """Implements `ports.Gateway`."""

    stub: "EpisodeServiceAsyncStub"

    async def brief(self, episode_id: str) -> Brief:
        """From GetEpisode."""
        try:
            view = await self.stub.GetEpisode(wire.GetEpisodeRequest(episode_id=episode_id), timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise to_error(error) from error
        asked = view.submission
        split = "heldout" if asked.task.split == SPLIT_HELDOUT else "train"
        task = Task(asked.task.environment, asked.task.task_id, split, asked.task.payload)
        told = asked.recorded
        recorded = Recorded(told.outcome, told.answer, told.agent_wall_s) if asked.HasField("recorded") else None
        return Brief(episode_id, asked.run_id, view.agent, task, view.agent_timeout_s, view.max_turns, recorded)

    async def credential(self, episode_id: str) -> Credential:
        """From IssueCredential."""
        try:
            answer = await self.stub.IssueCredential(
                wire.IssueCredentialRequest(episode_id=episode_id), timeout=DEADLINE_S
            )
        except grpc.RpcError as error:
            refused = to_error(error)
            raise (EpisodeSealed(refused.message) if isinstance(refused, Refused) else refused) from error
        return Credential(answer.base_url, answer.api_key, answer.model)
