"""Sidecars and router as processes on a real broker, with stand-ins for two engines: policies reach the engines one
after the other, calls go to the newest only, and every part may be killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import uvicorn
from brokers import RealBroker, free_port
from forgerl.events.v1 import gateway_pb2, trainer_pb2
from forgerl.router.v1 import router_service_pb2 as pb
from forgerl.router.v1.router_service_pb2_grpc import RouterServiceStub

from services.inference.gate import EngineGate
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, connect
from services.kernel.topics import BrokerSettings

pytestmark = pytest.mark.broker
TOKEN = "test-token"
METRICS = """vllm:num_requests_running{engine="0",model_name="policy"} 0.0
vllm:cache_config_info{block_size="32",engine="0"} 1.0
"""
ANSWERS = {
    "/metrics": (b"text/plain", METRICS.encode()),
    "/v1/models": (b"application/json", b'{"data": [{"max_model_len": 4096}]}'),
    "/collective_rpc": (b"application/json", b'{"results": [{"loaded": true, "why_not": ""}]}'),
    "/reset_prefix_cache": (b"application/json", b'{"success": true}'),
}


class StandIn:
    """Answers as vLLM does, behind the real gate; remembers what was loaded, and when."""

    def __init__(self) -> None:
        self.port = free_port()
        self.loads: list[tuple[float, float]] = []
        self.engine = SimpleNamespace(pause_generation=self._pause, output_processor=None)

    async def _pause(self, **_: Any) -> None:
        return None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/collective_rpc":
            began = monotonic()
            await asyncio.sleep(0.2)
            self.loads.append((began, monotonic()))
        kind, body = ANSWERS.get(scope["path"], (b"application/json", b"{}"))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})

    def app(self) -> Any:
        gate = EngineGate(self)
        state = SimpleNamespace(state=SimpleNamespace(engine_client=self.engine))

        async def with_app(scope: Any, receive: Any, send: Any) -> None:
            await gate({**scope, "app": state}, receive, send)

        return with_app


class World:
    """The processes, and the trainer's part."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.engines = [StandIn(), StandIn()]
        self.router_port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.catalogue = Catalogue.from_modules([trainer_pb2, gateway_pb2])
        self.store = EventStore.open(f"sqlite:///{folder}/trainer.db", self.catalogue, SystemClock())
        self.blobs = Blobs.open(f"file://{folder}/blobs")

    def start(self, name: str) -> None:
        own = {"FORGERL_ROUTER_BIND": f"127.0.0.1:{self.router_port}"}
        module = "services.router"
        if name != "router":
            module, at = "services.inference", int(name[-1])
            own = {
                "FORGERL_INFERENCE_WORKER_ID": name,
                "FORGERL_INFERENCE_ENGINE_URL": f"http://127.0.0.1:{self.engines[at].port}",
                "FORGERL_INFERENCE_BIND": f"127.0.0.1:{free_port()}",
            }
        shared = {"FORGERL_TOKEN": TOKEN, "FORGERL_SECRET": "s", "FORGERL_KAFKA_URL": self.url}
        env = {**os.environ, **shared, **own, "FORGERL_DATA_DIR": str(self.folder)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([sys.executable, "-m", module], env=env, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    async def publish(self, step: int) -> None:
        weights = self.folder / f"weights-{step}"
        weights.mkdir()
        (weights / "model.safetensors").write_bytes(b"w")
        uri = await self.blobs.put_folder(f"policies/run-1/{step}", weights)
        message = trainer_pb2.PolicyPublished(run_id="run-1", step=step, digest=f"d{step}", uri=uri)
        message.published_at.GetCurrentTime()
        await self.store.append([Write("trainer.policy/run-1", step, (message,))])

    async def route(self, timeout_s: float, **fields: Any) -> pb.Lease:
        async with connect(f"127.0.0.1:{self.router_port}", RpcSecurity(TOKEN)) as channel:
            request = pb.RouteRequest(call_id="c", run_id="run-1", token_ids=b"\1\0\0\0" * 100, **fields)
            return await RouterServiceStub(channel).Route(request, timeout=timeout_s, wait_for_ready=True)

    async def served_by_both(self, step: int) -> None:
        """Wait until either engine is given calls at `step`."""
        by: set[str] = set()
        async with asyncio.timeout(120):
            while len(by) < 2:
                lease = await self.route(60, avoid_worker_ids=by)
                if (lease.policy_step, lease.policy_digest) == (step, f"d{step}"):
                    by.add(lease.worker_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        servers = []
        for engine in self.engines:
            config = uvicorn.Config(engine.app(), port=engine.port, log_level="warning", lifespan="off")
            servers.append(uvicorn.Server(config))
        # The gateway has nothing to say here, but its topic must be there.
        gateway = EventStore.open(f"sqlite:///{self.folder}/gateway.db", self.catalogue, SystemClock())
        owners = ((self.store, "trainer"), (gateway, "gateway"))
        relays = [Relay(store, BrokerSettings(self.url), self.catalogue, name) for store, name in owners]
        tasks = [asyncio.create_task(server.serve()) for server in servers]
        relaying = [asyncio.create_task(relay.run()) for relay in relays]
        try:
            yield
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            for task in relaying:
                task.cancel()
            for server in servers:
                server.should_exit = True
            await asyncio.wait([*relaying, *tasks], timeout=15)


async def test_calls_follow_the_newest_policy_whatever_is_killed(
    own_broker: RealBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGERL_TOKEN", TOKEN)
    world = World(tmp_path, own_broker.url)
    async with world.running():
        for name in ("router", "engine-0", "engine-1"):
            world.start(name)
        await world.publish(0)
        await world.served_by_both(0)
        await world.publish(1)
        await world.served_by_both(1)
        # One after the other, never both at once.
        loads = sorted(span for engine in world.engines for span in engine.loads)
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(loads))

        world.kill("engine-0")
        world.kill("engine-1")
        with pytest.raises(grpc.RpcError) as silent:
            async with asyncio.timeout(120):
                while True:
                    await world.route(3.5)
        assert "no heartbeat" in str(silent.value.details())
        loaded = [len(engine.loads) for engine in world.engines]
        world.start("engine-0")
        assert (await world.route(60)).worker_id == "engine-0"
        # The engine still had its policy: nothing was interrupted.
        assert [len(engine.loads) for engine in world.engines] == loaded

        world.kill("router")
        world.start("router")
        # It knows the newest step from its store: a pinned older one is refused, the newest served.
        assert (await world.route(60)).policy_step == 1
        with pytest.raises(grpc.RpcError) as old:
            await world.route(1.5, pinned_step=0)
        assert "wanted is 0" in str(old.value.details())
