"""The one place where the trainer is put together. It refuses to decide anything."""

import asyncio
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.trainer.v1 import run_record_pb2
from forgerl.trainer.v1.policy_service_pb2_grpc import add_PolicyServiceServicer_to_server
from opentelemetry import trace

from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.errors import ForgeError
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, serve
from services.trainer.adapters.batches import Batches
from services.trainer.adapters.checkpoint_folders import CheckpointFolders
from services.trainer.adapters.curve_files import CurveFiles
from services.trainer.adapters.model_folder import weights_digest
from services.trainer.adapters.policy_scorer import PolicyScorer
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.application import Keeping, Meter, Runs, Trainer
from services.trainer.entrypoints.rpc import PolicyRpc
from services.trainer.ports import Learner
from services.trainer.ranks.daemon_thread import DaemonThread
from services.trainer.ranks.follower import Follower, follow
from services.trainer.ranks.group import Group
from services.trainer.ranks.launch import Followers, end_with_parent
from services.trainer.ranks.leader import RankedLearner
from services.trainer.ranks.place import Place, place_of
from services.trainer.settings import Settings
from services.trainer.training import Training

SERVICE = "trainer"
EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2, run_record_pb2)
TOPICS = ("forgerl.gateway.run.v1", "forgerl.scheduler.batch.v1")


async def build(settings: Settings) -> Sequence[Part]:
    """All parts of this process. Raises InvalidInput where a setting can't be used."""
    place = place_of(os.environ, settings.processes)
    if place.launched:
        end_with_parent()
    return (follower(settings, place),) if place.rank else await service(settings, place)


def follower(settings: Settings, place: Place) -> Part:
    """Any rank but 0: no events, no store, no door."""
    group = Group(place)

    def work() -> None:
        group.connect(settings.rank_timeout_s)
        follow(TorchLearner(settings.threads, group), group)

    return Follower(work, DaemonThread("torch"))


def leader(settings: Settings, place: Place, torch_thread: Executor) -> tuple[Learner, tuple[Part, ...]]:
    """Rank 0's learner, and the part that keeps the other ranks; with one process there is none."""
    if place.size == 1:
        return TorchLearner(settings.threads), ()
    loop, group = asyncio.get_running_loop(), Group(place)
    lost: asyncio.Future[None] = loop.create_future()

    def fail(error: BaseException) -> None:
        if not lost.done():
            lost.set_exception(ForgeError(f"ranks are out of step: {error}"))

    def on_lost(error: BaseException) -> None:
        loop.call_soon_threadsafe(fail, error)

    # Whatever is computed later waits behind this on the one thread.
    connected = loop.run_in_executor(torch_thread, group.connect, settings.rank_timeout_s)
    learner = RankedLearner(TorchLearner(settings.threads, group), group, on_lost)
    return learner, (Followers(place, (sys.executable, "-m", "services.trainer"), connected, lost),)


async def service(settings: Settings, place: Place) -> Sequence[Part]:
    """Rank 0: the service."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    blobs = Blobs.open(settings.blob_url, durability=settings.durability)
    checkpoints = CheckpointFolders(settings.data_dir / "checkpoints")
    torch_thread = ThreadPoolExecutor(1, thread_name_prefix="torch") if place.size == 1 else DaemonThread("torch")
    learner, ranks = leader(settings, place, torch_thread)
    training = Training(learner, checkpoints, blobs, torch_thread, weights_digest)
    runs = Runs(store)
    meter = Meter(clock, trace.get_tracer("forgerl.trainer"), settings.grad_noise_bound)
    keeping = Keeping(training, checkpoints, blobs, CurveFiles(settings.data_dir / "runs"))
    trainer = Trainer(runs, training, Batches(blobs), keeping, meter)
    broker = Broker(settings.broker(), catalogue, store)
    # One event a batch: a step is committed before the next one is looked at.
    broker.subscribe(TOPICS, service=SERVICE, handler=trainer.handle, max_batch=1)
    security = RpcSecurity(
        settings.token.get_secret_value(), settings.tls_certificate, settings.tls_key, settings.tls_ca
    )
    rpc = PolicyRpc(runs, training, blobs, PolicyScorer())
    server = await serve([(add_PolicyServiceServicer_to_server, rpc)], settings.bind, security)
    return (*ranks, server, Relay(store, settings.broker(), catalogue, SERVICE), broker)
