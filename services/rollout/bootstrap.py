"""The one place where the rollout service is put together. It refuses to start without a sandbox that works."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp
from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.gateway.v1.episode_service_pb2_grpc import EpisodeServiceStub
from forgerl.rollout.v1 import journal_pb2
from opentelemetry import metrics
from opentelemetry.metrics import NoOpMeterProvider

from services.environments.registry import environments
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import HealthPage, Part
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, connect
from services.rollout.adapters.bubblewrap import Bubblewrap, find_bubblewrap, inside_command, source_root
from services.rollout.adapters.freeing import RunTexts
from services.rollout.adapters.gateway import GatewayClient
from services.rollout.adapters.journal import StoredJournal
from services.rollout.adapters.model import ChatModel, Connections, http_client
from services.rollout.adapters.programs import BoxLimits, SandboxedPrograms
from services.rollout.adapters.python_sandbox import PythonSandbox
from services.rollout.adapters.temporal import connect_temporal
from services.rollout.adapters.texts import BlobTexts
from services.rollout.agents.agent import Agent
from services.rollout.application import Episodes
from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.consumer import AdmissionConsumer
from services.rollout.entrypoints.removals import TOPICS, Consumer
from services.rollout.entrypoints.worker import EpisodeWorker
from services.rollout.registry import agents
from services.rollout.settings import RolloutSettings
from services.rollout.tools import ToolCalls

SERVICE = "rollout"
EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2, journal_pb2)


async def build(settings: RolloutSettings) -> Sequence[Part]:
    """All parts. Raises Refused where no sandbox works, Transient where Temporal doesn't come up."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    brokers = settings.broker()
    walls = Bubblewrap(find_bubblewrap()) if settings.sandbox == "bubblewrap" else None
    sandbox = python_sandbox(settings, walls)
    await sandbox.probe()
    # Without one, every span of a workflow looks for a provider in the environment: a tenth of this service's time.
    metrics.set_meter_provider(NoOpMeterProvider())
    client = await connect_temporal(settings.temporal_address, settings.temporal_namespace)
    http = http_client(settings.episodes)
    gateway = gateway_client(settings)
    episodes = build_episodes(settings, store, (walls, sandbox), (gateway, http))
    queue = f"{settings.task_queue}-{settings.instance}"
    admissions = AdmissionConsumer(client, queue, settings.call_timeout_s, settings.patience_s, gateway.foresee)
    texts = RunTexts(store, Blobs.open(settings.blob_url, durability=settings.durability))
    broker = Broker(brokers, catalogue, store)
    broker.subscribe(TOPICS, service=SERVICE, handler=Consumer(admissions, texts).handle)
    worker = EpisodeWorker(client, queue, EpisodeActivities(episodes), settings.episodes)
    return (
        Connections(http),
        HealthPage(settings.health_bind),
        Relay(store, brokers, catalogue, SERVICE),
        worker,
        broker,
    )


def build_episodes(
    settings: RolloutSettings,
    store: EventStore,
    confined: tuple[Bubblewrap | None, PythonSandbox],
    doors: tuple[GatewayClient, aiohttp.ClientSession],
) -> Episodes:
    """The use cases on their adapters."""
    clock, (walls, sandbox), (gateway, http) = SystemClock(), confined, doors
    limits = BoxLimits(
        settings.program_memory_bytes,
        settings.program_processes,
        settings.tmp_bytes,
        settings.orphan_s,
        settings.patience_s,
    )
    boxes = settings.data_dir / "rollout" / "boxes"
    return Episodes(
        gateway=gateway,
        model=ChatModel(http),
        journal=StoredJournal(store, clock),
        texts=BlobTexts(Blobs.open(settings.blob_url, durability=settings.durability)),
        programs=SandboxedPrograms(walls, boxes, http, clock, limits, settings.programs),
        tools=ToolCalls(sandbox, clock),
        environments=environments(),
        agents=known_agents(settings),
    )


def gateway_client(settings: RolloutSettings) -> GatewayClient:
    """The gateway's gRPC door."""
    security = RpcSecurity(settings.token.get_secret_value(), ca=settings.tls_ca)
    return GatewayClient(EpisodeServiceStub(connect(settings.gateway_address, security)))


def python_sandbox(settings: RolloutSettings, walls: Bubblewrap | None) -> PythonSandbox:
    """The pool for tools; without walls only where that was asked for by name."""
    limits = (settings.tool_memory_bytes, settings.tool_processes)

    def command() -> Sequence[str]:
        if walls is None:
            return inside_command("zygote", 0, *limits, False, code_root=source_root())
        program = inside_command("zygote", next(walls.uids), *limits, True)
        return walls.command(program, (), tmp_bytes=settings.tmp_bytes)

    return PythonSandbox(command, settings.sandbox_pool)


def known_agents(settings: RolloutSettings) -> Mapping[str, Agent]:
    """The registry, with FORGERL_ROLLOUT_SCRIPT in the place of the example script."""
    found = dict(agents())
    if settings.script:
        found["openai_script"] = replace(found["openai_script"], command=(sys.executable, settings.script))
    return found
