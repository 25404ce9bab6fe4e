"""Constructs and wires the gateway; the only place that does."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from types import ModuleType

import aiohttp
from forgerl.common.v1 import run_pb2
from forgerl.events.v1 import gateway_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.gateway.v1 import episode_service_pb2_grpc, record_pb2, run_service_pb2_grpc
from opentelemetry import trace

from services.environments.registry import environments
from services.gateway.adapters.credentials import Credentials
from services.gateway.adapters.engine import READ_BUFFER_BYTES, HttpEngine
from services.gateway.adapters.router import RouterRoutes
from services.gateway.application import Desk, Registries
from services.gateway.completions import Completions, Limits, Tools
from services.gateway.entrypoints.http.door import Door
from services.gateway.entrypoints.http.openai_chat import OpenAiChat
from services.gateway.entrypoints.http.server import HttpServer, application
from services.gateway.entrypoints.rpc import Doors, EpisodeServicer, RunServicer
from services.gateway.entrypoints.run_clock import RunClock
from services.gateway.folds import Folds
from services.gateway.freeing import Freeing, with_freeing
from services.gateway.generating import Generating
from services.gateway.intake import TOPICS, Intake
from services.gateway.sealer import Sealer
from services.gateway.sessions import Sessions
from services.gateway.settings import Settings
from services.gateway.views import Views
from services.kernel import rpc
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import RandomIds, SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.outbox import Relay
from services.kernel.telemetry import whole_span

EVENTS: tuple[ModuleType, ...] = (gateway_pb2, trainer_pb2, scheduler_pb2, rollout_pb2, reward_pb2)
PRIVATE: tuple[ModuleType, ...] = (record_pb2,)


def new_trace(name: str, subject: str) -> str:
    """Traceparent of a fresh root span."""
    traceparent, end = whole_span(name, {"subject": subject})
    end()
    return traceparent


def agent_names(settings: Settings) -> frozenset[str]:
    """Built-in agents and those of plug-ins (entry point group `forgerl.agents`)."""
    plugged = {point.name for point in entry_points(group="forgerl.agents")}
    return frozenset({name.strip() for name in settings.agents.split(",") if name.strip()} | plugged)


async def build(settings: Settings) -> Sequence[Part]:
    """The gateway's parts, in the order in which they start."""
    clock = SystemClock()
    ids = RandomIds(clock)
    catalogue = Catalogue.from_modules(EVENTS)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    blobs = Blobs.open(settings.blob_url, durability=settings.durability)
    folds, sealer = Folds(store, clock), Sealer(store, blobs)

    async def spec_of(run_id: str) -> run_pb2.RunSpec:
        return (await folds.run(run_id)).spec

    sessions = Sessions(store, blobs, spec_of, settings.open_episodes)
    views = Views(store, sessions.drop)
    await views.catch_up()
    desk = Desk(store, folds, sealer, Registries(frozenset(environments()), agent_names(settings)), new_trace)
    credentials = Credentials(settings.secret.get_secret_value(), settings.key_lifetime_s, clock, ids)
    tools = Tools(clock, ids, trace.get_tracer("forgerl.gateway"))
    http = http_server(settings, sessions, credentials, tools)
    doors = Doors(desk, folds, views, store, blobs, credentials, f"{settings.url.rstrip('/')}/v1", settings.model)
    server = await rpc_server(settings, doors)
    broker_settings = settings.broker()
    broker = Broker(broker_settings, catalogue, store)
    handler = with_freeing(Intake(folds, sealer, clock).handle, Freeing(store, blobs))
    broker.subscribe(TOPICS, service="gateway", handler=handler)
    relay = Relay(store, broker_settings, catalogue, "gateway")
    return [relay, views, RunClock(desk, folds, views, clock), broker, server, http]


def http_server(settings: Settings, sessions: Sessions, credentials: Credentials, tools: Tools) -> HttpServer:
    """The agents' door."""
    token = settings.token.get_secret_value()
    client = engine_client(token, settings.call_timeout_s, 2 * settings.max_calls)
    engine = HttpEngine(client, settings.model)
    routes = RouterRoutes(rpc.connect(settings.router_address, security(settings)), tools.clock)
    generating = Generating(engine, routes, tools.clock, tools.ids)
    completions = Completions(sessions, generating, tools, Limits(settings.call_timeout_s, settings.max_calls))
    door = Door(completions, credentials, settings.model, settings.max_body_bytes, settings.keep_alive_s)
    return HttpServer(application(OpenAiChat(door).routes()), settings.http_bind, 4 * settings.max_calls, client.close)


async def rpc_server(settings: Settings, doors: Doors) -> rpc.Server:
    """The door of users and services."""
    return await rpc.serve(
        [
            (run_service_pb2_grpc.add_RunServiceServicer_to_server, RunServicer(doors)),
            (episode_service_pb2_grpc.add_EpisodeServiceServicer_to_server, EpisodeServicer(doors)),
        ],
        settings.bind,
        security(settings),
    )


def security(settings: Settings) -> rpc.RpcSecurity:
    """Token and TLS files."""
    token = settings.token.get_secret_value()
    return rpc.RpcSecurity(token, settings.tls_certificate, settings.tls_key, settings.tls_ca)


def engine_client(token: str, call_timeout_s: float, connections: int) -> aiohttp.ClientSession:
    """Connections to engines; a generation may be silent for as long as a call may last."""
    return aiohttp.ClientSession(
        # Engines close idle connections after 5 s: ours are given up before, so that none is used while it is closed.
        connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=3.0),
        timeout=aiohttp.ClientTimeout(total=call_timeout_s, sock_connect=2.0),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
        read_bufsize=READ_BUFFER_BYTES,
    )
