"""The router over gRPC.

It refuses to choose engines itself: without a lease nothing is generated.
"""

from collections.abc import Sequence

import grpc
from forgerl.router.v1 import router_service_pb2 as api
from forgerl.router.v1 import router_service_pb2_grpc as stubs

from services.gateway.ports import EngineUnavailable, RouteOrder, Served, Ticket
from services.gateway.records import pack_ids
from services.kernel import rpc
from services.kernel.clock import Clock
from services.kernel.errors import Transient
from services.kernel.logs import get_logger

_COMPLETE_TIMEOUT_S = 5.0
# Any engine can render, so a list that is a little old does no harm: one that is gone is skipped.
_LIST_FOR_S = 1.0


class RouterRoutes:
    """`Routes` over a channel."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock) -> None:
        self._stub, self._clock = stubs.RouterServiceStub(channel), clock
        self._serving: list[str] = []
        self._others: list[str] = []
        self._listed_s = -_LIST_FOR_S

    async def route(self, order: RouteOrder, timeout_s: float) -> Ticket:
        """Wait for an engine. Raises EngineUnavailable."""
        request = api.RouteRequest(
            call_id=order.call_id,
            episode_id=order.episode_id,
            run_id=order.run_id,
            group_id=order.group_id,
            token_ids=pack_ids(order.token_ids),
            max_new_tokens=order.max_new_tokens,
            pinned_step=order.pinned_step,
            avoid_worker_ids=order.avoid,
        )
        try:
            lease = await self._stub.Route(request, timeout=max(0.001, timeout_s))
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error
        return Ticket(lease.lease_id, lease.worker_id, lease.engine_url, lease.policy_step, lease.policy_digest)

    async def complete(self, ticket: Ticket, served: Served) -> None:
        """End the lease; a router that can't be told frees it at its deadline."""
        request = api.CompleteRequest(
            lease_id=ticket.lease_id,
            cached_tokens=served.cached_tokens,
            prompt_tokens=served.prompt_tokens,
            new_tokens=served.new_tokens,
            prefill_s=served.prefill_s,
            total_s=served.total_s,
            result=served.result,
        )
        try:
            await self._stub.Complete(request, timeout=_COMPLETE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            get_logger().warning("lease.complete_failed", lease_id=ticket.lease_id, error=str(error.code()))

    async def engine_urls(self, timeout_s: float) -> Sequence[str]:
        """URLs of all engines, those that serve first, these in turn. Raises EngineUnavailable when there is none."""
        if self._clock.monotonic() - self._listed_s >= _LIST_FOR_S:
            await self._list(timeout_s)
        self._serving = self._serving[1:] + self._serving[:1]
        return [*self._serving, *self._others]

    async def _list(self, timeout_s: float) -> None:
        try:
            answer = await self._stub.ListWorkers(api.ListWorkersRequest(), timeout=max(0.001, timeout_s))
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error
        workers = [worker for worker in answer.workers if worker.engine_url]
        if not workers:
            raise EngineUnavailable("no engine is known to the router")
        self._serving = [worker.engine_url for worker in workers if "ready" in worker.state.lower()]
        self._others = [worker.engine_url for worker in workers if "ready" not in worker.state.lower()]
        self._listed_s = self._clock.monotonic()


def _unavailable(error: grpc.aio.AioRpcError) -> Exception:
    translated = rpc.to_error(error)
    return EngineUnavailable(f"router: {translated.message}") if isinstance(translated, Transient) else translated
