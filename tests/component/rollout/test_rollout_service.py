"""The whole service as a process: real broker, real Temporal, real sandbox; only the gateway is scripted."""

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from brokers import RealBroker, free_port
from forgerl.common.v1 import task_pb2
from forgerl.events.v1 import rollout_pb2, scheduler_pb2
from forgerl.gateway.v1 import episode_service_pb2 as wire
from forgerl.gateway.v1.episode_service_pb2_grpc import (
    EpisodeServiceServicer,
    add_EpisodeServiceServicer_to_server,
)

from services.environments.tool import ToolEnvironment
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Write
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, serve
from services.kernel.topics import BrokerSettings
from services.rollout.inside.wire import read_request, response

TOKEN = "t" * 32
CATALOGUE = Catalogue.from_modules([rollout_pb2, scheduler_pb2])


class FakeGateway(EpisodeServiceServicer):
    """Every episode has the same task; even numbers are run by the black box."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    async def GetEpisodes(self, request, context):
        return wire.GetEpisodesResponse(episodes=[self.view(one) for one in request.episode_ids])

    def view(self, episode_id: str) -> wire.EpisodeView:
        task = ToolEnvironment().task("train", 1)
        view = wire.EpisodeView(agent="openai_script" if episode_id.endswith("0") else "tool_loop")
        view.agent_timeout_s, view.max_turns = 60.0, 3
        view.submission.episode_id, view.submission.run_id = episode_id, "run-1"
        view.submission.task.CopyFrom(
            task_pb2.Task(environment="tool", task_id=task.task_id, split=task_pb2.SPLIT_TRAIN, payload=task.payload)
        )
        return view

    async def IssueCredential(self, request, context):
        return wire.Credential(base_url=self.base_url, api_key=f"key-{request.episode_id}", model="policy")


async def answer_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for the tool first, then repeat what it said."""
    with suppress(EOFError, OSError):
        messages = json.loads((await read_request(reader)).body)["messages"]
        function = {"name": "python", "arguments": '{"code": "6*7"}'}
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        if messages[-1]["role"] == "tool":
            message = {"role": "assistant", "content": messages[-1]["content"]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
        writer.write(response(200, json.dumps(body).encode(), [("content-type", "application/json")]))
        await writer.drain()
    writer.close()


@dataclass
class Scheduler:
    """The scheduler's outbox, and what the others hear of rollout."""

    store: EventStore
    heard: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))

    async def admit(self, episode_id: str) -> None:
        message = scheduler_pb2.EpisodeAdmitted(episode_id=episode_id, run_id="run-1")
        await self.store.append([Write(f"scheduler.admission/{episode_id}", 0, (message,))])

    async def hear(self, events: Sequence[Event]) -> Sequence[Write]:
        for event in events:
            self.heard[event.key].append(event)
        return ()


@asynccontextmanager
async def running(*parts: Relay | Broker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.broker
async def test_admitted_episodes_finish_and_are_published(dev_server: str, tmp_path: Path, eventually) -> None:
    broker = RealBroker("tansu", tmp_path / "tansu")
    broker.start()
    health = free_port()
    settings = BrokerSettings(broker.url)
    store = EventStore.open(f"sqlite:///{tmp_path}/scheduler.db", CATALOGUE, SystemClock())
    scheduler = Scheduler(store)
    consumer = Broker(settings, CATALOGUE, store)
    consumer.subscribe(["forgerl.rollout.episode.v1"], service="gateway", handler=scheduler.hear)
    async with AsyncExitStack() as stack:
        stack.callback(broker.kill)
        llm = await stack.enter_async_context(await asyncio.start_server(answer_call, "127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{llm.sockets[0].getsockname()[1]}/v1"
        add = add_EpisodeServiceServicer_to_server
        gateway = await serve([(add, FakeGateway(base_url))], "127.0.0.1:0", RpcSecurity(TOKEN))
        stack.push_async_callback(gateway.stop)
        await stack.enter_async_context(running(Relay(store, settings, CATALOGUE, "scheduler"), consumer))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")},
            "FORGERL_DATA_DIR": str(tmp_path / "data"),
            "FORGERL_KAFKA_URL": broker.url,
            "FORGERL_TEMPORAL_ADDRESS": dev_server,
            "FORGERL_GATEWAY_ADDRESS": f"127.0.0.1:{gateway.port}",
            "FORGERL_TOKEN": TOKEN,
            "FORGERL_SECRET": "s" * 32,
            "FORGERL_ROLLOUT_HEALTH_BIND": f"127.0.0.1:{health}",
        }
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.rollout", env=environment)

        async def healthy() -> bool:
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient() as client:
                    return (await client.get(f"http://127.0.0.1:{health}/healthz")).status_code == 200
            return False

        await eventually(healthy, 60)
        names = [f"ep-{number}" for number in range(8)]
        for name in names:
            await scheduler.admit(name)
        await eventually(lambda: all(len(scheduler.heard[name]) == 2 for name in names), 60)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0
    for name in names:
        started, finished = (event.message for event in scheduler.heard[name])
        assert isinstance(started, rollout_pb2.EpisodeStarted)
        assert isinstance(finished, rollout_pb2.EpisodeFinished), finished
        assert (finished.answer, finished.outcome) == ("42", task_pb2.OUTCOME_COMPLETED)
    assert scheduler.heard["ep-1"][1].cause.causation_id == "scheduler.admission/ep-1@1"
    spans = [json.loads(line) for file in (tmp_path / "data" / "traces").iterdir() for line in file.open()]
    assert {"RunWorkflow:EpisodeWorkflow", "RunActivity:serve_turn"} <= {span["name"] for span in spans}
