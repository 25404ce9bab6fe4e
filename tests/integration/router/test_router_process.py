"""The router as a process, on a real broker: killed -9, it knows the newest policy, and old leases do no harm."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from brokers import RealBroker, free_port
from forgerl.events.v1 import inference_pb2
from forgerl.events.v1.trainer_pb2 import PolicyPublished
from forgerl.router.v1 import router_service_pb2 as pb
from forgerl.router.v1.router_service_pb2_grpc import RouterServiceStub

from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, connect
from services.kernel.topics import BrokerSettings
from services.router.bootstrap import EVENT_MODULES

pytestmark = pytest.mark.broker
PROMPT = struct.pack("<100I", *range(100))
ROUTE = pb.RouteRequest(call_id="c", run_id="r", token_ids=PROMPT)


class World:
    """The trainer, which publishes policies; the sidecar of one engine, which reports; and a caller."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.settings, self.port = folder, BrokerSettings(url), free_port()
        self.catalogue = Catalogue.from_modules(EVENT_MODULES)
        self.trainer = EventStore.open(f"sqlite:///{folder}/trainer.db", self.catalogue, SystemClock())
        self.sidecar = Broker(self.settings, self.catalogue, self.trainer)
        self.channel = connect(f"127.0.0.1:{self.port}", RpcSecurity("test-token"))
        self.stub = RouterServiceStub(self.channel)
        self.engine_step = 0
        self.sequence = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "FORGERL_DATA_DIR": str(self.folder / "router"),
            "FORGERL_STORE_URL": f"sqlite:///{self.folder}/router.db",
            "FORGERL_KAFKA_URL": self.settings.url,
            "FORGERL_ROUTER_BIND": f"127.0.0.1:{self.port}",
            "FORGERL_TOKEN": "test-token",
            "FORGERL_SECRET": "test-secret",
        }
        with (self.folder / "router.log").open("ab") as log:
            command = [sys.executable, "-m", "services.router"]
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    async def publish(self, step: int) -> None:
        published = PolicyPublished(run_id="r", step=step, digest=f"d{step}")
        await self.trainer.append([Write("trainer.policy/r", step, (published,))])

    async def report_for_ever(self) -> None:
        while True:
            self.sequence += 1
            report = inference_pb2.WorkerReported(
                worker_id="w",
                incarnation="i",
                sequence=self.sequence,
                state=inference_pb2.WORKER_STATE_READY,
                engine_url="http://w",
                run_id="r",
                policy_step=self.engine_step,
                policy_digest=f"d{self.engine_step}",
                block_tokens=32,
            )
            await self.sidecar.signal(report)
            await asyncio.sleep(0.2)

    async def route(self, timeout_s: float = 30) -> pb.Lease:
        return await self.stub.Route(ROUTE, timeout=timeout_s, wait_for_ready=True)


async def test_killed_it_serves_the_newest_policy_only_and_forgets_leases(
    own_broker: RealBroker, tmp_path: Path, eventually: Callable[..., Awaitable[None]]
) -> None:
    world = World(tmp_path, own_broker.url)
    relay = Relay(world.trainer, world.settings, world.catalogue, "trainer")
    tasks = [asyncio.create_task(part) for part in (relay.run(), world.sidecar.run(), world.report_for_ever())]
    try:
        async with asyncio.timeout(200):
            world.start()
            await world.publish(0)
            old = await world.route()
            assert (old.worker_id, old.policy_step) == ("w", 0)

            await world.publish(1)

            async def stale_engine_is_refused() -> bool:
                try:
                    return (await world.route(0.5)).policy_step > 0
                except grpc.RpcError as error:
                    return error.code() is grpc.StatusCode.UNAVAILABLE

            await eventually(stale_engine_is_refused, timeout_s=60)
            world.kill()
            world.start()
            # Policy 1 comes from the router's own store: its events won't be consumed again.
            with pytest.raises(grpc.RpcError) as refused:
                await world.route(10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, refused.value.details()

            world.engine_step = 1
            new = await world.route()
            assert (new.worker_id, new.policy_step, new.policy_digest) == ("w", 1, "d1")
            # The lease of the life before is unknown; ending it is answered, so that no caller fails for it.
            ended = pb.CompleteRequest(lease_id=old.lease_id, result="done", prompt_tokens=100)
            await world.stub.Complete(ended, timeout=5)
            workers = (await world.stub.ListWorkers(pb.ListWorkersRequest(), timeout=5)).workers
            assert [(one.worker_id, one.leases) for one in workers] == [("w", 1)]
    finally:
        world.kill()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=15)
        await world.channel.close()
