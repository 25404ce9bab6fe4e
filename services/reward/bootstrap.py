"""The one place where the reward service is put together. It refuses to decide anything."""

from collections.abc import Sequence

from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2
from forgerl.reward.v1 import case_pb2
from opentelemetry import trace

from services.environments.registry import environments
from services.kernel.blobs import Blobs
from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore
from services.kernel.lifecycle import HealthPage, Part
from services.kernel.outbox import Relay
from services.reward.adapters.environment_verifier import EnvironmentVerifier
from services.reward.application import Scoring
from services.reward.settings import Settings

SERVICE = "reward"
EVENT_MODULES = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2, case_pb2)
TOPICS = ("forgerl.gateway.episode.v1", "forgerl.rollout.episode.v1")


def build(settings: Settings) -> Sequence[Part]:
    """All parts. Raises InvalidInput where a setting can't be used."""
    clock = SystemClock()
    catalogue = Catalogue.from_modules(EVENT_MODULES)
    store = EventStore.open(settings.store_url, catalogue, clock, durability=settings.durability)
    blobs = Blobs.open(settings.blob_url, durability=settings.durability)
    verifier = EnvironmentVerifier(environments(), settings.verifier_deadline_s, settings.verifiers)
    brokers = settings.broker()
    broker = Broker(brokers, catalogue, store)
    scoring = Scoring(store, blobs, verifier, trace.get_tracer("forgerl.reward"))
    broker.subscribe(TOPICS, service=SERVICE, handler=scoring.handle)
    return (HealthPage(settings.health_bind), Relay(store, brokers, catalogue, SERVICE), broker)
