"""gRPC door of the router: checks, translates and calls."""

from typing import Any

from forgerl.router.v1 import router_service_pb2 as pb
from forgerl.router.v1.router_service_pb2_grpc import RouterServiceServicer

from services.kernel.clock import Clock
from services.kernel.errors import InvalidInput
from services.router.application import Outcome, RouteOrder, Router
from services.router.domain.chain import TOKEN_BYTES
from services.router.domain.leases import Considered
from services.router.fleet import Fleet

_RESULTS = ("done", "refused", "aborted", "failed")
# Without a deadline of the caller's; and how much earlier than it an answer must go out to arrive.
_LONGEST_WAIT_S, _ANSWER_S = 30.0, 0.05


class RouterServicer(RouterServiceServicer):
    """RouterService."""

    def __init__(self, router: Router, fleet: Fleet, clock: Clock) -> None:
        self._router, self._fleet, self._clock = router, fleet, clock

    async def Route(self, request: pb.RouteRequest, context: Any) -> pb.Lease:
        if not request.run_id:
            raise InvalidInput("run_id", "", "a run")
        if not request.token_ids or len(request.token_ids) % TOKEN_BYTES:
            raise InvalidInput("token_ids", f"{len(request.token_ids)} bytes", "uint32 each, at least one")
        order = RouteOrder(
            call_id=request.call_id,
            run_id=request.run_id,
            group_id=request.group_id,
            token_ids=request.token_ids,
            max_new_tokens=request.max_new_tokens,
            pinned_step=request.pinned_step if request.HasField("pinned_step") else None,
            avoid=frozenset(request.avoid_worker_ids),
        )
        left_s = context.time_remaining()
        granted = await self._router.route(order, _LONGEST_WAIT_S if left_s is None else left_s - _ANSWER_S)
        lease, report = granted.lease, granted.report
        return pb.Lease(
            lease_id=lease.lease_id,
            worker_id=lease.worker_id,
            engine_url=report.engine_url,
            policy_step=report.policy_step,
            policy_digest=report.policy_digest,
            predicted_cached_tokens=lease.cost.hit_tokens,
            deadline_s=lease.deadline_s - lease.began_s,
        )

    async def Complete(self, request: pb.CompleteRequest, context: Any) -> pb.CompleteResponse:
        if request.result not in _RESULTS:
            raise InvalidInput("result", request.result, ", ".join(_RESULTS))
        outcome = Outcome(
            result=request.result,
            cached_tokens=request.cached_tokens,
            prompt_tokens=request.prompt_tokens,
            new_tokens=request.new_tokens,
            prefill_s=request.prefill_s,
            total_s=request.total_s,
        )
        self._router.complete(request.lease_id, outcome)
        return pb.CompleteResponse()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.Explanation:
        lease = self._router.explain(request.lease_id, request.call_id)
        return pb.Explanation(
            lease_id=lease.lease_id,
            call_id=lease.call_id,
            candidates=[_candidate(one) for one in lease.considered],
            chosen_worker_id=lease.worker_id,
            reason=lease.reason,
            predicted_cached_tokens=lease.cost.hit_tokens,
            actual_cached_tokens=lease.actual_cached_tokens,
        )

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Any) -> pb.ListWorkersResponse:
        now_s = self._clock.monotonic()
        views: list[pb.WorkerView] = []
        for worker_id, worker in sorted(self._fleet.workers.items()):
            report = worker.report
            a_s, b_s, c_s = worker.speed.prefill_coefficients
            view = pb.WorkerView(
                worker_id=worker_id,
                engine_url=report.engine_url,
                state=report.state,
                run_id=report.run_id,
                policy_step=report.policy_step,
                policy_digest=report.policy_digest,
                leases=worker.leases,
                indexed_blocks=len(worker.index),
                heartbeat_age_s=now_s - worker.heard_s,
                prefill_a_s=a_s,
                prefill_b_s=b_s,
                prefill_c_s=c_s,
                cache_error_tokens=worker.cache_error_tokens,
            )
            views.append(view)
        return pb.ListWorkersResponse(workers=views)


def _candidate(one: Considered) -> pb.Candidate:
    if one.cost is None:
        return pb.Candidate(worker_id=one.worker_id, why_not=one.why_not)
    cost = one.cost
    return pb.Candidate(
        worker_id=one.worker_id,
        eligible=True,
        queue_s=cost.queue_s,
        source=cost.source,
        hit_tokens=cost.hit_tokens,
        fetch_s=cost.fetch_s,
        prefill_s=cost.prefill_s,
        decode_s=cost.decode_s,
        total_s=cost.total_s,
    )
