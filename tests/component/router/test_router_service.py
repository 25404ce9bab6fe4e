"""RouterService over gRPC: inputs that are refused by name, deadlines, and decisions that can be explained."""

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from forgerl.router.v1 import router_service_pb2 as pb
from forgerl.router.v1.router_service_pb2_grpc import RouterServiceStub, add_RouterServiceServicer_to_server

from services.kernel.clock import RandomIds, SystemClock
from services.kernel.rpc import RpcSecurity, connect, serve
from services.router.application import Router
from services.router.domain.workers import Report
from services.router.entrypoints.rpc import RouterServicer
from services.router.fleet import Fleet
from services.router.ports import Limits, Outside

LIMITS = Limits(3.0, 600.0, 0.0, 0.05, 1000, 64, 128.0)
PROMPT = struct.pack("<100I", *range(100))


@dataclass(frozen=True, slots=True)
class Door:
    fleet: Fleet
    stub: RouterServiceStub


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    clock = SystemClock()
    fleet = Fleet(clock, LIMITS)
    router = Router(fleet, Outside(clock, RandomIds(clock), lambda: 0.0), LIMITS)
    servicer = RouterServicer(router, fleet, clock)
    server = await serve([(add_RouterServiceServicer_to_server, servicer)], "127.0.0.1:0", RpcSecurity("t"))
    async with connect(f"127.0.0.1:{server.port}", RpcSecurity("t")) as channel:
        yield Door(fleet, RouterServiceStub(channel))
    await server.stop()


def ready(fleet: Fleet) -> None:
    fleet.note_policy("run-1", 0)
    fleet.report(Report("w1", "i1", 1, "ready", "http://w1", "run-1", 0, "d0", 0, 32))


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (pb.RouteRequest(token_ids=PROMPT), "run_id"),
        (pb.RouteRequest(run_id="run-1"), "token_ids"),
        (pb.RouteRequest(run_id="run-1", token_ids=b"abc"), "token_ids"),
    ],
)
async def test_a_bad_request_names_its_field(door: Door, request_: pb.RouteRequest, named: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        await door.stub.Route(request_, timeout=5)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert named in str(error.value.details())


async def test_without_an_engine_the_caller_learns_why_before_its_deadline(door: Door) -> None:
    with pytest.raises(grpc.RpcError) as error:
        await door.stub.Route(pb.RouteRequest(run_id="run-1", token_ids=PROMPT), timeout=0.4)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "no engine for run run-1" in str(error.value.details())


async def test_a_decision_and_what_came_of_it_can_be_explained(door: Door) -> None:
    ready(door.fleet)
    lease = await door.stub.Route(pb.RouteRequest(call_id="c1", run_id="run-1", token_ids=PROMPT), timeout=5)
    assert (lease.worker_id, lease.engine_url, lease.policy_digest, lease.deadline_s) == ("w1", "http://w1", "d0", 600)
    workers = (await door.stub.ListWorkers(pb.ListWorkersRequest())).workers
    # 100 tokens are 3 full blocks.
    assert [(one.worker_id, one.state, one.leases, one.indexed_blocks) for one in workers] == [("w1", "ready", 1, 3)]
    done = pb.CompleteRequest(
        lease_id=lease.lease_id, cached_tokens=64, prompt_tokens=100, new_tokens=9, total_s=0.2, result="done"
    )
    await door.stub.Complete(done)
    await door.stub.Complete(done)
    told = await door.stub.Explain(pb.ExplainRequest(call_id="c1"))
    assert (told.chosen_worker_id, told.predicted_cached_tokens, told.actual_cached_tokens) == ("w1", 0, 64)
    assert [(one.worker_id, one.eligible, one.source) for one in told.candidates] == [("w1", True, "none")]
    worker = (await door.stub.ListWorkers(pb.ListWorkersRequest())).workers[0]
    assert (worker.leases, worker.cache_error_tokens) == (0, 64)


async def test_an_unknown_result_or_lease_is_refused(door: Door) -> None:
    with pytest.raises(grpc.RpcError) as error:
        await door.stub.Complete(pb.CompleteRequest(lease_id="x", result="fine"))
    assert "done, refused, aborted, failed" in str(error.value.details())
    with pytest.raises(grpc.RpcError) as unknown:
        await door.stub.Explain(pb.ExplainRequest(lease_id="x"))
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
