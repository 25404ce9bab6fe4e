"""PolicyService: policies, metrics, and log-probabilities to compare with an engine's. It refuses to change a run."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
from forgerl.trainer.v1 import policy_service_pb2 as pb
from forgerl.trainer.v1.policy_service_pb2_grpc import PolicyServiceServicer

from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput, NotFound
from services.trainer.application import Runs
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.run_state import RunState, kept_policies
from services.trainer.ports import Scorer
from services.trainer.training import Training

MAX_TOKENS = 65536
Call = grpc.aio.ServicerContext


class PolicyRpc(PolicyServiceServicer):
    """Answers from the event store; scoring takes its turn behind a step that is being trained."""

    def __init__(self, runs: Runs, training: Training, blobs: Blobs, scorer: Scorer) -> None:
        self._runs = runs
        self._training = training
        self._blobs = blobs
        self._scorer = scorer

    async def ListPolicies(self, request: pb.ListPoliciesRequest, context: Call) -> pb.ListPoliciesResponse:
        """Policies that can still be loaded, or all that were published."""
        views = policy_views(await self._known(request.run_id))
        return pb.ListPoliciesResponse(policies=[view for view in views if view.kept_as or request.include_gone])

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Call) -> pb.GetMetricsResponse:
        """Metrics of every completed step."""
        state = await self._known(request.run_id)
        return pb.GetMetricsResponse(
            steps=[
                pb.StepMetrics(step=s.step, metrics=dict(s.metrics), completed_at=s.completed_at) for s in state.steps
            ]
        )

    async def ScoreTokens(self, request: pb.ScoreTokensRequest, context: Call) -> pb.ScoreTokensResponse:
        """Log-probabilities of tokens under a policy."""
        state = await self._known(request.run_id)
        if len(request.token_ids) > MAX_TOKENS:
            raise InvalidInput("token_ids", f"{len(request.token_ids)} ids", f"at most {MAX_TOKENS}")
        if not request.temperature >= 0:
            raise InvalidInput("temperature", request.temperature, "at least 0 (0 stands for 1)")
        kept = kept_policies(state)
        policy = next((p for p in state.policies if p.step == request.policy_step and p.step in kept), None)
        if policy is None:
            raise NotFound(f"run {request.run_id}: policy {request.policy_step} is not there (any more)")
        with TemporaryDirectory(prefix="policy-scored-") as scratch:
            folder = await self._blobs.fetch_folder(policy.uri, Path(scratch))
            work = partial(self._scorer.score, folder, list(request.token_ids), request.temperature or 1.0)
            try:
                return pb.ScoreTokensResponse(logprobs=await self._training.compute(work))
            except StepRefused as refused:
                raise NotFound(refused.detail) from refused

    async def _known(self, run_id: str) -> RunState:
        state = await self._runs.load(run_id)
        if state.spec is None:
            raise NotFound(f"run {run_id} is not known to the trainer")
        return state


def policy_views(state: RunState) -> Iterator[pb.PolicyView]:
    """Every policy that was published, with what the step that made it measured."""
    kept = kept_policies(state)
    steps = {step.step: step for step in state.steps}
    for policy in state.policies:
        view = pb.PolicyView(
            run_id=policy.run_id,
            step=policy.step,
            digest=policy.digest,
            uri=policy.uri,
            published_at=policy.published_at,
            kept_as=kept.get(policy.step, ""),
            size_bytes=policy.size_bytes,
            adapter=policy.adapter,
        )
        if policy.step in steps:
            metrics = steps[policy.step].metrics
            view.reward_mean, view.mismatch_kl = metrics["reward_mean"], metrics["mismatch_kl"]
        yield view
