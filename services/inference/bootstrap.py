"""Constructs and wires the sidecar; the only place that does."""

from collections.abc import Sequence
from pathlib import Path

from forgerl.events.v1 import gateway_pb2, inference_pb2, trainer_pb2
from forgerl.inference.v1 import inference_service_pb2_grpc, records_pb2

from services.inference.adapters.kv_events import ZmqKvEvents
from services.inference.adapters.policies import StoredPolicies
from services.inference.adapters.signals import WorkerSignals
from services.inference.adapters.turns import FileTurns
from services.inference.adapters.vllm_http import VllmEngine
from services.inference.application import Pace, Sidecar
from services.inference.entrypoints.consumer import TOPICS, BookKeeper
from services.inference.entrypoints.kv_feed import KvFeed
from services.inference.entrypoints.rpc import InferenceServicer
from services.inference.ports import Outside
from services.inference.settings import Settings
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import RandomIds, SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.rpc import RpcSecurity, serve

EVENT_MODULES = (gateway_pb2, inference_pb2, trainer_pb2, records_pb2)


async def build(settings: Settings) -> Sequence[Part]:
    """The sidecar's parts, in the order in which they start."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    broker = Broker(settings.broker(), catalogue, store)
    incarnation = RandomIds(clock).new("inc")
    signals = WorkerSignals(broker.signal, settings.worker_id, settings.engine_url, incarnation)
    engine = VllmEngine(settings.engine_url, settings.token.get_secret_value(), settings.engine_timeout_s)
    sidecar = Sidecar(Outside(engine, _policies(settings), signals, _turns(settings), clock), _pace(settings))
    keeper = BookKeeper(store, settings.worker_id, sidecar.follow)
    await keeper.recall()
    # Each sidecar hears everything: a group of its own.
    broker.subscribe(TOPICS, service=f"inference-{settings.worker_id}", handler=keeper.handle)
    source = ZmqKvEvents(settings.kv_events_address) if settings.kv_events_address else None
    feed = KvFeed(source, signals, settings.worker_id, incarnation)
    server = await serve(
        [(inference_service_pb2_grpc.add_InferenceServiceServicer_to_server, InferenceServicer(sidecar, feed))],
        settings.bind,
        _security(settings),
    )
    return [broker, feed, sidecar, server]


def _policies(settings: Settings) -> StoredPolicies:
    pool = Path(settings.kv_pool_dir) if settings.kv_pool_dir else None
    cache = settings.data_dir / "policies" / settings.worker_id
    return StoredPolicies(Blobs.open(settings.blob_url, durability=settings.durability), cache, pool)


def _turns(settings: Settings) -> FileTurns:
    return FileTurns(settings.data_dir / "locks" / "swap")


def _pace(settings: Settings) -> Pace:
    return Pace(settings.heartbeat_s, settings.silent_s, warm_up_tokens=settings.warm_up_tokens)


def _security(settings: Settings) -> RpcSecurity:
    return RpcSecurity(settings.token.get_secret_value(), settings.tls_certificate, settings.tls_key, settings.tls_ca)
