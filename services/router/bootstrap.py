"""Constructs and wires the router; the only place that does."""

import random
from collections.abc import Sequence

from forgerl.events.v1 import gateway_pb2, inference_pb2, trainer_pb2
from forgerl.router.v1 import records_pb2, router_service_pb2_grpc

from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import RandomIds, SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.rpc import RpcSecurity, serve
from services.router.application import Router
from services.router.entrypoints.consumer import KV_TOPIC, POLICY_TOPIC, WORKER_TOPIC, Listener
from services.router.entrypoints.rpc import RouterServicer
from services.router.fleet import Fleet
from services.router.ports import Limits, Outside
from services.router.settings import Settings

SERVICE = "router"
EVENT_MODULES = (gateway_pb2, inference_pb2, trainer_pb2, records_pb2)


async def build(settings: Settings) -> Sequence[Part]:
    """The router's parts, in the order in which they start."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    broker = Broker(settings.broker(), catalogue, store)
    limits = Limits(**{name: getattr(settings, name) for name in Limits.__dataclass_fields__})
    fleet = Fleet(clock, limits)
    router = Router(fleet, Outside(clock, RandomIds(clock), random.random), limits)
    listener = Listener(store, fleet)
    await listener.recall()
    broker.subscribe([POLICY_TOPIC], service=SERVICE, handler=listener.policies)
    broker.listen(WORKER_TOPIC, listener.worker)
    broker.listen(KV_TOPIC, listener.blocks)
    security = RpcSecurity(
        settings.token.get_secret_value(), settings.tls_certificate, settings.tls_key, settings.tls_ca
    )
    servicer = RouterServicer(router, fleet, clock)
    door = (router_service_pb2_grpc.add_RouterServiceServicer_to_server, servicer)
    return [broker, await serve([door], settings.bind, security)]
