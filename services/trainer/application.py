"""The trainer's use cases: take a run, train a batch exactly once, free a run; and what can be asked of it.

Exactly once: the checkpoint is durable before one transaction appends StepCompleted and PolicyPublished and marks the
batch as seen; old folders go only once later events are committed. It refuses a batch out of turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.events.v1.gateway_pb2 import RunCreated, RunEnded, RunRemoved
from forgerl.events.v1.scheduler_pb2 import BatchAssembled
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted, StepFailed
from forgerl.scheduler.v1.manifest_pb2 import BatchManifest
from forgerl.trainer.v1.report_pb2 import EpisodeReport, HistogramReport, StepReport
from forgerl.trainer.v1.run_record_pb2 import PolicyPinned, RunFreed, RunTaken
from google.protobuf.message import Message
from opentelemetry import trace

from services.kernel.blobs import Blobs
from services.kernel.clock import Clock
from services.kernel.envelope import Event
from services.kernel.errors import Permanent, Transient
from services.kernel.event_store import EventStore, Write
from services.kernel.logs import get_logger
from services.kernel.telemetry import link, use_parent
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.losses import loss_of
from services.trainer.domain.metrics import staleness_steps, yield_metrics
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.run_state import RunState, fold, freed_policies, kept_checkpoints
from services.trainer.domain.training_yield import StepPoint, measure
from services.trainer.ports import Checkpoints, Curves
from services.trainer.training import POLICY_ROOT, BatchReader, PolicyFolder, TrainedStep, Training

REPORT_MEDIA_TYPE = "application/x-protobuf"
LINKS_AT_MOST = 1024


class Runs:
    """Reads what the trainer's events say of a run."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def load(self, run_id: str) -> RunState:
        """The run's state; an unknown run has no spec."""
        records = await self._store.read(record_stream(run_id))
        published = await self._store.read(policy_stream(run_id))
        return fold(run_id, [event.message for event in records], [event.message for event in published])


@dataclass(frozen=True, slots=True)
class Meter:
    """What steps are timed and traced by, and the bound of J's first condition."""

    clock: Clock
    tracer: trace.Tracer
    noise_bound: float


class Trainer:
    """Handles events, one at a time."""

    def __init__(
        self, runs: Runs, training: Training, batches: BatchReader, keeping: "Keeping", meter: "Meter"
    ) -> None:
        self._runs = runs
        self._training = training
        self._batches = batches
        self._keeping = keeping
        self._clock = meter.clock
        self._noise_bound = meter.noise_bound
        self._tracer = meter.tracer

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """The writes that answer the events. Raises Transient when a run is not known yet."""
        writes: list[Write] = []
        for event in events:
            match event.message:
                case RunCreated() as created:
                    writes += await self._take(created)
                case BatchAssembled() as assembled:
                    writes += await self._train(assembled, event.cause.traceparent)
                case RunEnded() as ended:
                    writes += await self._pin(ended.run_id)
                case RunRemoved() as removed:
                    writes += await self._free(removed.run_id)
                case _:
                    pass
        return writes

    async def _take(self, created: RunCreated) -> list[Write]:
        run_id = created.run_id
        state = await self._runs.load(run_id)
        if state.spec is not None:
            return []
        taken = RunTaken(run_id=run_id, spec=created.spec)
        record = Write(record_stream(run_id), state.record_version, (taken,))
        try:
            interval = loss_of(created.spec.training).describe()
            get_logger().info("run.taken", run_id=run_id, loss=interval)
            policy, pace = await self._training.first_policy(run_id, created.spec)
        except StepRefused as refused:
            return [record, self._failed(state, 0, refused)]
        taken.pace.operation_s, taken.pace.call_s = pace.operation_s, pace.call_s
        published = published_of(run_id, 0, policy, self._clock.now())
        get_logger().info("policy.published", run_id=run_id, step=0, digest=policy.digest)
        return [record, Write(policy_stream(run_id), state.policy_version, (published,))]

    async def _train(self, assembled: BatchAssembled, traceparent: str) -> list[Write]:
        run_id = assembled.run_id
        state = await self._runs.load(run_id)
        if state.spec is None:
            raise Transient(f"run {run_id}: a batch came before the run")
        if state.freed or state.failure or assembled.batch <= state.step:
            get_logger().info("batch.ignored", run_id=run_id, batch=assembled.batch, failure=state.failure)
            return []
        if assembled.batch != state.step + 1:
            raise Transient(f"run {run_id}: batch {assembled.batch} came, {state.step + 1} is missing")
        await self._keeping.clean(state)
        try:
            manifest = await self._batches.manifest(assembled.manifest)
            messages = await self._step(state, manifest, traceparent)
        except StepRefused as refused:
            return [self._failed(state, assembled.batch, refused)]
        return [Write(policy_stream(run_id), state.policy_version, messages)]

    async def _step(self, state: RunState, manifest: BatchManifest, traceparent: str) -> tuple[Message, ...]:
        links = [link(episode.traceparent) for item in manifest.items for episode in item.episodes]
        with (
            use_parent(traceparent),
            self._tracer.start_as_current_span(
                "optimiser.step", links=[known for known in links if known][:LINKS_AT_MOST]
            ) as span,
        ):
            span.set_attributes({"run_id": state.run_id, "step": state.step + 1})
            started_s = self._clock.monotonic()
            trained = await self._training.step(state, await self._batches.groups(manifest))
            trained.metrics["step_s"] = self._clock.monotonic() - started_s
            return await self._tell(state, trained)

    async def _tell(self, state: RunState, trained: TrainedStep) -> tuple[Message, ...]:
        number, now = state.step + 1, self._clock.now()
        completed = StepCompleted(
            run_id=state.run_id,
            step=number,
            checkpoint_uri=trained.checkpoint.uri,
            checkpoint_sha256=trained.checkpoint.sha256,
            trained_tokens=trained.stats.tokens,
            metrics=trained.metrics,
        )
        completed.completed_at.FromDatetime(now)
        completed.metrics.update(yield_metrics(measure(step_points(state, completed), self._noise_bound)))
        completed.report.CopyFrom(await self._keeping.report(state, trained, dict(completed.metrics)))
        published = published_of(state.run_id, number, trained.policy, now)
        await self._keeping.curves(state, completed, trained.stats.histograms)
        if trained.alarm:
            get_logger().warning("mismatch.alarm", run_id=state.run_id, step=number, detail=trained.alarm)
        reward = round(trained.metrics["reward_mean"], 4)
        get_logger().info("step.completed", run_id=state.run_id, step=number, reward_mean=reward)
        return (completed, published)

    async def _pin(self, run_id: str) -> list[Write]:
        """The policy that a run ends with is what it is evaluated on, also when the run is resumed meanwhile."""
        state = await self._runs.load(run_id)
        if state.freed or not state.policies or state.policies[-1].step in state.pinned_steps:
            return []
        pinned = PolicyPinned(run_id=run_id, step=state.policies[-1].step)
        return [Write(record_stream(run_id), state.record_version, (pinned,))]

    async def _free(self, run_id: str) -> list[Write]:
        state = await self._runs.load(run_id)
        if state.spec is None or state.freed:
            return []
        freed_bytes = await self._keeping.free(state)
        return [Write(record_stream(run_id), state.record_version, (RunFreed(run_id=run_id, freed_bytes=freed_bytes),))]

    def _failed(self, state: RunState, step: int, refused: StepRefused) -> Write:
        get_logger().error("step.failed", run_id=state.run_id, step=step, detail=refused.detail)
        failed = StepFailed(run_id=state.run_id, step=step, detail=refused.detail)
        return Write(policy_stream(state.run_id), state.policy_version, (failed,))


class Keeping:
    """What the trainer keeps beside its events: reports, curves, and folders until they are old."""

    def __init__(self, training: Training, checkpoints: Checkpoints, blobs: Blobs, curves: Curves) -> None:
        self._training = training
        self._checkpoints = checkpoints
        self._blobs = blobs
        self._curves = curves

    async def clean(self, state: RunState) -> None:
        """Remove checkpoints and policies that committed events have left behind, and workspaces of lost attempts."""
        keep = kept_checkpoints(state)
        await self._training.compute(partial(self._checkpoints.keep_only, state.run_id, keep))
        for policy in freed_policies(state):
            await self._blobs.delete(policy.uri)

    async def report(self, state: RunState, trained: TrainedStep, metrics: dict[str, float]) -> BlobRef:
        """Put what was done with each episode into the blob store."""
        report = StepReport(run_id=state.run_id, step=state.step + 1, metrics=metrics)
        for name, histogram in trained.stats.histograms.items():
            report.histograms.append(
                HistogramReport(
                    name=name,
                    edges=histogram.edges,
                    counts=histogram.counts,
                    low=histogram.low if histogram.count else 0.0,
                    high=histogram.high if histogram.count else 0.0,
                )
            )
        for plan in trained.prepared.plans:
            report.episodes.append(
                EpisodeReport(
                    episode_id=plan.episode.episode_id,
                    trained=plan.trained,
                    why_not=plan.why_not,
                    total_reward=plan.total_reward,
                    mean_advantage=plan.mean_advantage,
                    trained_tokens=plan.trained_tokens,
                    turn_advantages=plan.turn_advantages,
                    staleness_steps=staleness_steps(plan, state.step),
                    loss_weight=trained.prepared.loss_weights.get(plan.episode.episode_id, 0.0),
                    masked_tokens=trained.prepared.masked_tokens(plan.episode.episode_id),
                )
            )
        return await self._blobs.put(report.SerializeToString(deterministic=True), REPORT_MEDIA_TYPE)

    async def curves(self, state: RunState, completed: StepCompleted, histograms: Mapping[str, Histogram]) -> None:
        """Write the run's curves with the new step."""
        steps = [(int(step.step), dict(step.metrics)) for step in (*state.steps, completed)]
        await self._training.compute(partial(self._curves.record, state.run_id, steps, histograms))

    async def free(self, state: RunState) -> int:
        """Remove everything of a run; returns the bytes freed."""
        freed = await self._training.compute(partial(self._checkpoints.keep_only, state.run_id, set()))
        if state.policies:
            root = state.policies[0].uri.rsplit("/", 1)[0]
            if not root.endswith(f"{POLICY_ROOT}/{state.run_id}"):
                raise Permanent(f"run {state.run_id}: its policies stand at {root}, which is not a place of its own")
            freed += (await self._blobs.delete(root))[1]
        for step in state.steps:
            freed += (await self._blobs.delete(step.report.uri))[1]
        await self._training.compute(partial(self._curves.forget, state.run_id))
        return freed


def step_points(state: RunState, newest: StepCompleted) -> list[StepPoint]:
    """The run's steps as J sees them; time counts from the first policy's publication."""
    start_s = state.started_at.timestamp() if state.started_at else 0.0
    return [
        StepPoint(
            step.metrics["reward_mean"],
            step.trained_tokens,
            step.completed_at.ToDatetime().timestamp() - start_s,
            step.metrics["grad_noise"],
        )
        for step in (*state.steps, newest)
    ]


def published_of(run_id: str, step: int, policy: PolicyFolder, at: datetime) -> PolicyPublished:
    """The event that a policy can be loaded."""
    published = PolicyPublished(
        run_id=run_id,
        step=step,
        digest=policy.digest,
        uri=policy.uri,
        size_bytes=policy.size_bytes,
        adapter=policy.adapter,
    )
    published.published_at.FromDatetime(at)
    return published


def record_stream(run_id: str) -> str:
    """The private stream of a run."""
    return f"trainer.run/{run_id}"


def policy_stream(run_id: str) -> str:
    """The published stream of a run."""
    return f"trainer.policy/{run_id}"
