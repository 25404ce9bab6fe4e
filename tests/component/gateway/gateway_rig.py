"""The gateway's own parts, wired as bootstrap does, with scripted engines and routes; real HTTP in between."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import openai
from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2
from gateway_engine import ScriptedEngine
from opentelemetry import trace

from services.gateway import bootstrap, records
from services.gateway.adapters.credentials import Credentials
from services.gateway.adapters.engine import HttpEngine
from services.gateway.application import Desk, Registries
from services.gateway.completions import Completions, Limits, Tools
from services.gateway.domain.tree import MessageTree
from services.gateway.entrypoints.http.door import Door
from services.gateway.entrypoints.http.openai_chat import OpenAiChat
from services.gateway.entrypoints.http.server import HttpServer, application
from services.gateway.folds import Folds
from services.gateway.generating import Generating
from services.gateway.intake import Intake
from services.gateway.ports import EngineUnavailable, RouteOrder, Served, Ticket
from services.gateway.sealer import Sealer
from services.gateway.sessions import Sessions, turns_stream
from services.gateway.views import Views
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import RandomIds, SystemClock
from services.kernel.event_store import EventStore

DIGEST = "d0"


def spec() -> run_pb2.RunSpec:
    """A run file that the contract accepts."""
    return run_pb2.RunSpec(
        name="r",
        model=run_pb2.ModelSpec(path="/m"),
        domains=[run_pb2.DomainSpec(name="tool")],
        end=run_pb2.EndSpec(steps=3),
        sampling=run_pb2.SamplingSpec(temperature=0.7, top_p=0.9, max_tokens=200),
    )


def submission(episode_id: str = "ep-1", run_id: str = "r1", **more: object) -> episode_service_pb2.Submission:
    """A training episode."""
    task = task_pb2.Task(environment="tool", task_id="t", split=task_pb2.SPLIT_TRAIN, payload=b"{}")
    fields = {"kind": task_pb2.EPISODE_KIND_TRAIN, "group_id": "g", "domain": "tool", "task": task, **more}
    return episode_service_pb2.Submission(episode_id=episode_id, run_id=run_id, **fields)  # type: ignore[arg-type]


class ScriptedRoutes:
    """Hands out engines in turn; the policy is whatever the test sets."""

    def __init__(self, engines: Sequence[ScriptedEngine]) -> None:
        self.engines, self.step, self.digest = engines, 0, DIGEST
        self.orders: list[RouteOrder] = []
        self.served: list[Served] = []
        self.open = asyncio.Event()
        self.open.set()

    async def route(self, order: RouteOrder, timeout_s: float) -> Ticket:
        self.orders.append(order)
        try:
            await asyncio.wait_for(self.open.wait(), timeout_s)
        except TimeoutError:
            raise EngineUnavailable("no engine") from None
        index = next((i for i in range(len(self.engines)) if f"w{i}" not in order.avoid), 0)
        lease = f"l{len(self.orders)}"
        return Ticket(lease, f"w{index}", self.engines[index].url, self.step, self.digest)

    async def complete(self, ticket: Ticket, served: Served) -> None:
        self.served.append(served)

    async def engine_urls(self, timeout_s: float) -> Sequence[str]:
        return [engine.url for engine in self.engines]


class Rig:
    """One gateway replica over a folder; several rigs over one folder are replicas of one service."""

    def __init__(self, folder: Path, engines: Sequence[ScriptedEngine], **limits: float) -> None:
        self.clock = SystemClock()
        self._clients: list[openai.AsyncOpenAI] = []
        ids = RandomIds(self.clock)
        catalogue = Catalogue.from_modules(bootstrap.EVENTS)
        self.store = EventStore.open(f"sqlite:///{folder}/gateway.db", catalogue, self.clock)
        self.blobs = Blobs.open(f"file://{folder}/blobs")
        self.folds, self.sealer = Folds(self.store, self.clock), Sealer(self.store, self.blobs)
        self.sessions = Sessions(self.store, self.blobs, self._spec_of, capacity=int(limits.pop("open_episodes", 100)))
        self.views = Views(self.store, self.sessions.drop)
        self.desk = Desk(self.store, self.folds, self.sealer, Registries({"tool"}, {"tool_loop"}), bootstrap.new_trace)
        self.intake = Intake(self.folds, self.sealer, self.clock)
        self.credentials = Credentials("secret-of-the-test-that-is-long-enough", 60.0, self.clock, ids)
        self.client = bootstrap.engine_client("engine-token", 20.0, 100)
        self.routes = ScriptedRoutes(engines)
        generating = Generating(HttpEngine(self.client, "policy"), self.routes, self.clock, ids)
        tools = Tools(self.clock, ids, trace.get_tracer("test"))
        self.completions = Completions(
            self.sessions, generating, tools, Limits(limits.pop("call_timeout_s", 10.0), int(limits.pop("calls", 64)))
        )
        door = Door(
            self.completions,
            self.credentials,
            "policy",
            int(limits.pop("max_body_bytes", 1 << 20)),
            limits.pop("keep_alive_s", 5.0),
        )
        self.http = HttpServer(application(OpenAiChat(door).routes()), "127.0.0.1:0", 1000)

    async def _spec_of(self, run_id: str) -> run_pb2.RunSpec:
        return (await self.folds.run(run_id)).spec

    async def start(self) -> None:
        self._serving = asyncio.create_task(self.http.run())
        await self.http.listening()
        self.url = f"http://127.0.0.1:{self.http.port}"

    async def stop(self) -> None:
        self._serving.cancel()
        await asyncio.wait({self._serving})
        for client in self._clients:
            await client.close()
        await self.client.close()
        await self.store.close()

    async def episode(self, episode_id: str = "ep-1") -> str:
        """A run and a submitted episode; answers the episode's key."""
        await self.desk.create_run("r1", spec())
        await self.desk.submit(submission(episode_id))
        return self.credentials.issue(episode_id, "r1").api_key

    def openai(self, key: str, retries: int = 0, **headers: str) -> openai.AsyncOpenAI:
        """The real SDK against this replica."""
        self._clients.append(
            openai.AsyncOpenAI(
                base_url=f"{self.url}/v1", api_key=key, max_retries=retries, default_headers=headers, timeout=20.0
            )
        )
        return self._clients[-1]

    async def tree(self, episode_id: str = "ep-1") -> MessageTree:
        """What is recorded, read from the store."""
        tree = MessageTree()
        await records.fold(tree, await self.store.read(turns_stream(episode_id)), self.blobs)
        return tree

    async def published(self, stream: str) -> list[object]:
        """Messages of a stream."""
        return [event.message for event in await self.store.read(stream)]


def sealed(messages: Sequence[object]) -> gateway_pb2.TrajectorySealed:
    """The one seal among them."""
    found = [message for message in messages if isinstance(message, gateway_pb2.TrajectorySealed)]
    assert len(found) == 1
    return found[0]
