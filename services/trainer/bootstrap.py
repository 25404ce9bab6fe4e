"""The one place where the trainer is put together. It refuses to decide anything."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.trainer.v1 import run_record_pb2
from forgerl.trainer.v1.policy_service_pb2_grpc import add_PolicyServiceServicer_to_server
from opentelemetry import trace

from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import Part
from services.kernel.outbox import Relay
from services.kernel.rpc import RpcSecurity, serve
from services.kernel.topics import BrokerSettings
from services.trainer.adapters.batches import Batches
from services.trainer.adapters.checkpoint_folders import CheckpointFolders
from services.trainer.adapters.curve_files import CurveFiles
from services.trainer.adapters.model_folder import weights_digest
from services.trainer.adapters.policy_scorer import PolicyScorer
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.application import Keeping, Meter, Runs, Trainer
from services.trainer.entrypoints.rpc import PolicyRpc
from services.trainer.settings import Settings
from services.trainer.training import Training

SERVICE = "trainer"
EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2, run_record_pb2)
TOPICS = ("forgerl.gateway.run.v1", "forgerl.scheduler.batch.v1")


async def build(settings: Settings) -> Sequence[Part]:
    """All parts. Raises InvalidInput where a setting can't be used."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    blobs = Blobs.open(settings.blob_url, durability=settings.durability)
    checkpoints = CheckpointFolders(settings.data_dir / "checkpoints")
    torch_thread = ThreadPoolExecutor(1, thread_name_prefix="torch")
    training = Training(TorchLearner(settings.threads), checkpoints, blobs, torch_thread, weights_digest)
    runs = Runs(store)
    meter = Meter(clock, trace.get_tracer("forgerl.trainer"), settings.grad_noise_bound)
    keeping = Keeping(training, checkpoints, blobs, CurveFiles(settings.data_dir / "runs"))
    trainer = Trainer(runs, training, Batches(blobs), keeping, meter)
    brokers = BrokerSettings(settings.kafka_url, settings.kafka_replication)
    broker = Broker(brokers, catalogue, store)
    # One event a batch: a step is committed before the next one is looked at.
    broker.subscribe(TOPICS, service=SERVICE, handler=trainer.handle, max_batch=1)
    security = RpcSecurity(
        settings.token.get_secret_value(), settings.tls_certificate, settings.tls_key, settings.tls_ca
    )
    rpc = PolicyRpc(runs, training, blobs, PolicyScorer())
    server = await serve([(add_PolicyServiceServicer_to_server, rpc)], settings.bind, security)
    return (server, Relay(store, brokers, catalogue, SERVICE), broker)
