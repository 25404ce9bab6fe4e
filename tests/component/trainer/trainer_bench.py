"""A trainer on a real event store, blob store and torch, around a tiny model; a batch is made of hand-made episodes."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch
from clocks import ManualClock
from forgerl.common.v1.run_pb2 import RunSpec
from forgerl.events.v1 import gateway_pb2, scheduler_pb2, trainer_pb2
from forgerl.scheduler.v1.manifest_pb2 import BatchManifest
from google.protobuf.message import Message
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from services.contract.run_spec import resolve
from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event
from services.kernel.event_store import EventStore
from services.kernel.inbox import Inbox
from services.trainer.adapters.batches import Batches
from services.trainer.adapters.checkpoint_folders import CheckpointFolders
from services.trainer.adapters.curve_files import CurveFiles
from services.trainer.adapters.model_folder import weights_digest
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.application import Keeping, Meter, Runs, Trainer
from services.trainer.bootstrap import EVENT_MODULES
from services.trainer.ports import Learner
from services.trainer.training import Training

VOCABULARY = 48
RUN = "run-1"


def make_model(folder: Path, *, tied: bool = False, template: str | None = "{{ messages }}") -> Path:
    """A Qwen3 of a few thousand parameters with a tokenizer."""
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(VOCABULARY - 1)} | {"[UNK]": VOCABULARY - 1}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")))
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def reference_logprobs(model: Qwen3ForCausalLM, ids: Sequence[int]) -> list[float]:
    """log p(ids[t] | before) for t >= 1, plainly."""
    # Threads split sums differently, and torch counts them by thread: one, so that every process gets equal bits.
    torch.set_num_threads(1)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    return [float(torch.log_softmax(logits[t - 1].double(), -1)[ids[t]]) for t in range(1, len(ids))]


def sampled(node_id: int, parent: int, turn: int, ids: Sequence[int], logprobs: Sequence[float], step: int = 0) -> Node:
    spans = (Span(0, len(ids), step, "digest"),)
    return Node(
        node_id, parent, "sampled", turn, "assistant", "{}", tuple(ids), tuple(logprobs), spans, 1.0, 1.0, "stop"
    )


def context(node_id: int, parent: int, ids: Sequence[int]) -> Node:
    return Node(node_id, parent, "context", -1, "user", "{}", tuple(ids))


def two_turns(episode_id: str, seed: int, model: Qwen3ForCausalLM, step: int = 0) -> Trajectory:
    """prompt, turn, tool result, turn; logprobs are the model's own."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY - 2, (14 + seed % 3,), generator=draw).tolist()
    logprobs = [0.0, *reference_logprobs(model, ids)]
    nodes = (
        context(0, -1, ids[:4]),
        sampled(1, 0, 0, ids[4:7], logprobs[4:7], step),
        context(2, 1, ids[7:9]),
        sampled(3, 2, 1, ids[9:], logprobs[9:], step),
    )
    return Trajectory(episode_id, RUN, nodes)


@dataclass
class Bench:
    """One trainer process; `restart` makes another on the same disk."""

    root: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    versions: dict[str, int] = field(default_factory=dict)
    make_learner: Callable[[], tuple[Learner, Executor]] = lambda: (TorchLearner(1), ThreadPoolExecutor(1))

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        url = f"sqlite:///{self.root}/trainer.db"
        self.store = EventStore.open(url, Catalogue.from_modules(EVENT_MODULES), self.clock)
        self.blobs = Blobs.open(f"file://{self.root}/blobs")
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        tracer = provider.get_tracer("test")
        checkpoints = CheckpointFolders(self.root / "checkpoints")
        learner, threads = self.make_learner()
        self.training = Training(learner, checkpoints, self.blobs, threads, weights_digest)
        self.runs = Runs(self.store)
        keeping = Keeping(self.training, checkpoints, self.blobs, CurveFiles(self.root / "runs"))
        self.trainer = Trainer(self.runs, self.training, Batches(self.blobs), keeping, Meter(self.clock, tracer, 2.0))
        self.inbox = Inbox(self.store, "trainer")

    def event(self, stream: str, message: Message) -> Event:
        self.versions[stream] = self.versions.get(stream, 0) + 1
        cause = Cause("c", "", "00-" + "1" * 32 + "-" + "2" * 16 + "-01")
        return Event(stream, self.versions[stream], self.clock.now(), message, cause)

    async def feed(self, event: Event) -> list[Message]:
        """Hand an event over as the broker does; answers the run's published events."""
        await self.inbox.handle([event], self.trainer.handle)
        return await self.published()

    async def published(self) -> list[Message]:
        return [event.message for event in await self.store.read(f"trainer.policy/{RUN}")]

    async def create(self, model: Path, **training: float) -> list[Message]:
        spec = RunSpec(seed=3)
        spec.model.path = str(model)
        spec.domains.add(name="tool")
        spec.end.steps = 10
        for name, value in training.items():
            setattr(spec.training, name, value)
        created = gateway_pb2.RunCreated(run_id=RUN, spec=resolve(spec))
        return await self.feed(self.event(f"gateway.run/{RUN}", created))

    async def batch(
        self, number: int, groups: Sequence[Sequence[tuple[Trajectory, float, bool]]], domains: Sequence[str] = ()
    ) -> Event:
        """A BatchAssembled of (trajectory, performance, eligible); `domains`: one a group, else "tool"."""
        manifest = BatchManifest(run_id=RUN, batch=number)
        for index, group in enumerate(groups):
            domain = domains[index] if domains else "tool"
            item = manifest.items.add(group_id=f"g{index}", domain=domain, position=index)
            for trajectory, performance, eligible in group:
                episode = item.episodes.add(episode_id=trajectory.episode_id, eligible=eligible, agent_wall_s=1.0)
                episode.trajectory.CopyFrom(await self.blobs.put(encode(trajectory), MEDIA_TYPE))
                episode.score.performance = performance
                episode.score.failure_class = "solved" if performance >= 0.5 else "wrong"
                episode.traceparent = (
                    "00-" + hashlib.md5(trajectory.episode_id.encode()).hexdigest() + "-" + "3" * 16 + "-01"
                )
                if not eligible:
                    episode.why_not = "infra"
        ref = await self.blobs.put(manifest.SerializeToString(), "application/x-protobuf")
        assembled = scheduler_pb2.BatchAssembled(run_id=RUN, batch=number, manifest=ref)
        return self.event(f"scheduler.batch/{RUN}", assembled)

    def policy_model(self, published: trainer_pb2.PolicyPublished) -> Qwen3ForCausalLM:
        model = Qwen3ForCausalLM.from_pretrained(published.uri.removeprefix("file://"), dtype=torch.float32)
        return model.eval()
