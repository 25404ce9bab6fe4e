"""gRPC on a real socket: token, errors both ways, deadlines, health, reflection, traces."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from forgerl.gateway.v1 import episode_service_pb2 as episodes
from forgerl.gateway.v1 import episode_service_pb2_grpc as episodes_grpc
from forgerl.scheduler.v1 import scheduler_service_pb2 as messages
from forgerl.scheduler.v1 import scheduler_service_pb2_grpc as stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.kernel import errors
from services.kernel.rpc import RpcSecurity, connect, serve, translated

SECURITY = RpcSecurity("right")
NAME = "forgerl.scheduler.v1.SchedulerService"
RAISED = {
    "invalid": errors.InvalidInput("run_id", "x", "a-z"),
    "missing": errors.NotFound("no such run"),
    "refused": errors.Refused("not now"),
    "moved": errors.Conflict("moved"),
    "again": errors.Transient("away"),
    "broken": errors.Permanent("broken"),
}


class Servicer(stubs.SchedulerServiceServicer):
    async def GetCapacity(self, request, context):
        if request.run_id in RAISED:
            raise RAISED[request.run_id]
        if request.run_id == "bug":
            raise ValueError("a secret detail")
        if request.run_id == "slow":
            await asyncio.Event().wait()
        return messages.Capacity(queued_items=7)


class Streams(episodes_grpc.EpisodeServiceServicer):
    async def WatchEpisode(self, request, context):
        yield episodes.EpisodeView()
        raise errors.NotFound("gone meanwhile")


@pytest.fixture
async def address() -> AsyncIterator[str]:
    add = [
        (stubs.add_SchedulerServiceServicer_to_server, Servicer()),
        (episodes_grpc.add_EpisodeServiceServicer_to_server, Streams()),
    ]
    server = await serve(add, "127.0.0.1:0", SECURITY)
    yield f"127.0.0.1:{server.port}"
    await server.stop()


async def ask(address: str, run_id: str, token: str = "right", timeout: float | None = None):
    async with connect(address, RpcSecurity(token)) as channel:
        with translated():
            return await stubs.SchedulerServiceStub(channel).GetCapacity(
                messages.GetCapacityRequest(run_id=run_id), timeout=timeout
            )


async def test_a_call_with_the_token_is_served(address: str) -> None:
    assert (await ask(address, "fine")).queued_items == 7


@pytest.mark.parametrize("token", ["", "wrong", "righ", "right "])
async def test_a_call_without_the_token_is_refused(address: str, token: str) -> None:
    with pytest.raises(errors.Unauthenticated):
        await ask(address, "fine", token)


@pytest.mark.parametrize("name", sorted(RAISED))
async def test_errors_arrive_as_what_they_were(address: str, name: str) -> None:
    with pytest.raises(type(RAISED[name])) as caught:
        await ask(address, name)
    assert type(caught.value) is type(RAISED[name])
    assert caught.value.message == RAISED[name].message


async def test_a_bug_shows_no_detail(address: str) -> None:
    with pytest.raises(errors.Transient) as caught:
        await ask(address, "bug")
    assert caught.value.message == "internal: ValueError"


async def test_a_stream_that_fails_half_way_ends_with_its_error(address: str) -> None:
    async with connect(address, SECURITY) as channel:
        call = episodes_grpc.EpisodeServiceStub(channel).WatchEpisode(episodes.WatchEpisodeRequest())
        got = []
        with pytest.raises(errors.NotFound, match="gone meanwhile"), translated():
            async for reply in call:
                got.append(reply)
        assert got == [episodes.EpisodeView()]


async def test_a_deadline_and_an_absent_server_are_transient(address: str) -> None:
    with pytest.raises(errors.Transient):
        await ask(address, "slow", timeout=0.2)
    with pytest.raises(errors.Transient):
        await ask("127.0.0.1:1", "fine")


async def test_health_needs_no_token_and_reflection_does(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=NAME))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        with pytest.raises(grpc.RpcError):
            [reply async for reply in reflect(iter([asked]))]
    async with connect(address, SECURITY) as channel:
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        replies = [reply async for reply in reflect(iter([asked]))]
        assert NAME in {service.name for service in replies[0].list_services_response.service}


async def test_a_taken_port_is_named(address: str) -> None:
    with pytest.raises(errors.InvalidInput, match=f"bind: given '{address}'"):
        await serve([], address, SECURITY)


async def test_tls_is_spoken_where_files_are_given(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    await asyncio.to_thread(subprocess.run, [*map(str, make), *subject], check=True, capture_output=True)
    security = RpcSecurity("right", certificate=certificate, key=key, ca=certificate)
    server = await serve([(stubs.add_SchedulerServiceServicer_to_server, Servicer())], "localhost:0", security)
    async with connect(f"localhost:{server.port}", security) as channel:
        assert (await stubs.SchedulerServiceStub(channel).GetCapacity(messages.GetCapacityRequest())).queued_items == 7
    with pytest.raises(errors.Transient):
        await ask(f"localhost:{server.port}", "fine", timeout=2)
    await server.stop()


class Endless(episodes_grpc.EpisodeServiceServicer):
    async def WatchEpisode(self, request, context):
        while True:
            yield episodes.EpisodeView(answer="x" * 100_000)


async def test_a_watch_that_is_called_off_leaves_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    server = await serve([(episodes_grpc.add_EpisodeServiceServicer_to_server, Endless())], "127.0.0.1:0", SECURITY)
    async with connect(f"127.0.0.1:{server.port}", SECURITY) as channel:
        stub = episodes_grpc.EpisodeServiceStub(channel)
        for _ in range(5):
            call = stub.WatchEpisode(episodes.WatchEpisodeRequest(episode_id="e"))
            assert (await call.read()).answer
            call.cancel()
            await call.code()
    await server.stop()
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
