"""The one place where the scheduler is put together. It refuses to decide anything."""

from collections.abc import Sequence

from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server

from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import Clock, RandomIds, SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, serve
from services.scheduler.adapters.journal import StoredJournal
from services.scheduler.adapters.published import EventPublisher
from services.scheduler.adapters.reports import BlobReports
from services.scheduler.application import Scheduler
from services.scheduler.entrypoints.consumer import TOPICS, Consumer
from services.scheduler.entrypoints.rpc import SchedulerRpc
from services.scheduler.entrypoints.timer import Timer
from services.scheduler.settings import Settings

SERVICE = "scheduler"
EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)


def build_scheduler(
    store: EventStore, blobs: Blobs, catalogue: Catalogue, clock: Clock, fleet_episodes: int = 0
) -> Scheduler:
    """The use cases on their adapters; every call makes another replica."""
    publisher = EventPublisher(blobs, catalogue, store)
    return Scheduler(StoredJournal(store), publisher, clock, RandomIds(clock).new("scheduler"), fleet_episodes)


async def build(settings: Settings, clock: Clock | None = None) -> Sequence[Part]:
    """All parts, after the recorded queues were folded. Raises InvalidInput where a setting can't be used.

    clock: a set one where decisions are compared with a simulation's; else the machine's.
    """
    clock = clock or SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    blobs = Blobs.open(settings.blob_url, durability=settings.durability)
    scheduler = build_scheduler(store, blobs, catalogue, clock, settings.fleet_episodes)
    await scheduler.load()
    brokers = settings.broker()
    consumer = Consumer(scheduler, BlobReports(blobs), clock)
    broker = Broker(brokers, catalogue, store)
    broker.subscribe(TOPICS, service=SERVICE, handler=consumer.handle, max_batch=settings.max_batch)
    security = RpcSecurity(
        settings.token.get_secret_value(), settings.tls_certificate, settings.tls_key, settings.tls_ca
    )
    server = await serve([(add_SchedulerServiceServicer_to_server, SchedulerRpc(scheduler))], settings.bind, security)
    timer = Timer(scheduler, clock, settings.deadline_grace_s)
    return (server, Relay(store, brokers, catalogue, SERVICE), timer, broker)
