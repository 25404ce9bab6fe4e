"""The gateway by gRPC: which tasks episodes are, and keys for their agents. It refuses to wait beyond a deadline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
from forgerl.common.v1.task_pb2 import SPLIT_HELDOUT
from forgerl.gateway.v1 import episode_service_pb2 as wire

from services.environments.interface import Task
from services.kernel.errors import Refused
from services.kernel.rpc import to_error, translated
from services.rollout.adapters.briefs import CommonBriefs
from services.rollout.ports import Brief, Credential, EpisodeSealed, Recorded

if TYPE_CHECKING:
    from forgerl.gateway.v1.episode_service_pb2_grpc import EpisodeServiceAsyncStub

DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """Implements `ports.Gateway`, and tells what is foreseen."""

    stub: "EpisodeServiceAsyncStub"
    _briefs: CommonBriefs = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_briefs", CommonBriefs(self._ask))

    async def foresee(self, episode_ids: Sequence[str]) -> None:
        """See `CommonBriefs.foresee`."""
        await self._briefs.foresee(episode_ids)

    async def brief(self, episode_id: str) -> Brief:
        """From GetEpisodes."""
        return await self._briefs.brief(episode_id)

    async def _ask(self, episode_ids: Sequence[str]) -> Mapping[str, Brief | None]:
        with translated():
            answer = await self.stub.GetEpisodes(wire.GetEpisodesRequest(episode_ids=episode_ids), timeout=DEADLINE_S)
        found = {view.submission.episode_id: brief_in(view) for view in answer.episodes}
        return found | dict.fromkeys(answer.missing)

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


def brief_in(view: wire.EpisodeView) -> Brief:
    """What rollout needs to know of a view."""
    asked = view.submission
    split = "heldout" if asked.task.split == SPLIT_HELDOUT else "train"
    task = Task(asked.task.environment, asked.task.task_id, split, asked.task.payload)
    told = asked.recorded
    recorded = Recorded(told.outcome, told.answer, told.agent_wall_s) if asked.HasField("recorded") else None
    return Brief(asked.episode_id, asked.run_id, view.agent, task, view.agent_timeout_s, view.max_turns, recorded)
