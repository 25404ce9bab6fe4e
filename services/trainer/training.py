"""One optimiser step, from a manifest to a durable checkpoint and a folder that engines can load.

Its effects may happen again after a crash, with the same result; nothing counts before the caller commits. It refuses
to decide which batch is next.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.common.v1.run_pb2 import RunSpec
from forgerl.scheduler.v1.manifest_pb2 import BatchManifest

from services.contract.policy_folder import ADAPTER_FOLDER
from services.kernel.blobs import Blobs
from services.trainer.domain.episodes import EpisodeInput
from services.trainer.domain.guard import BatchStats, check_mismatch, mismatch_alarm
from services.trainer.domain.losses import loss_of
from services.trainer.domain.merging import FREE_CALLS, Pace
from services.trainer.domain.metrics import all_metrics
from services.trainer.domain.preparation import PreparedBatch, prepare
from services.trainer.domain.run_state import RunState
from services.trainer.ports import MODEL_FOLDER, Checkpoint, Checkpoints, Learner, Optimiser, Recipe

T = TypeVar("T")
POLICY_ROOT = "policies"


class BatchReader(Protocol):
    """Reads a batch's blobs; both raise StepRefused."""

    async def manifest(self, ref: BlobRef) -> BatchManifest:
        """The manifest."""
        ...

    async def groups(self, manifest: BatchManifest) -> list[list[EpisodeInput]]:
        """Episodes with trajectories, by group."""
        ...


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """What a step left behind. `alarm`: why its mismatch is worth a warning; empty when it isn't."""

    checkpoint: Checkpoint
    policy: "PolicyFolder"
    prepared: PreparedBatch
    stats: BatchStats
    metrics: dict[str, float]
    alarm: str


@dataclass(frozen=True, slots=True)
class PolicyFolder:
    """A folder that an engine can load, and the digest of its weights. `adapter`: with a peft adapter beside them."""

    uri: str
    digest: str
    size_bytes: int
    adapter: bool


class Training:
    """Holds the one session: the run and checkpoint that the learner's weights stand at."""

    def __init__(
        self, learner: Learner, checkpoints: Checkpoints, blobs: Blobs, threads: Executor, digest: Callable[[Path], str]
    ) -> None:
        self._learner = learner
        self._checkpoints = checkpoints
        self._blobs = blobs
        # One thread: all of torch's work of this process, one thing after the other.
        self._threads = threads
        self._digest = digest
        self._session: tuple[str, str] | None = None

    async def first_policy(self, run_id: str, spec: RunSpec) -> tuple[PolicyFolder, Pace]:
        """Load the run's model, put its folder where engines find it, and see how fast it trains. Raises StepRefused.

        The pace belongs to the run from then on: measured anew it could choose another way, and round otherwise.
        """
        self._session = None
        with TemporaryDirectory(prefix="policy-") as folder:
            await self.compute(partial(self._learner.start, Path(spec.model.path), optimiser_of(spec)))
            policy = await self._publish(run_id, 0, Path(folder))
            pace = await self.compute(partial(self._learner.measure_pace, recipe_of(spec, 0, FREE_CALLS)))
        self._session = (run_id, "")
        return policy, pace

    async def step(self, state: RunState, groups: Sequence[Sequence[EpisodeInput]]) -> TrainedStep:
        """Train the batch after the run's last step. Raises StepRefused; the weights are then loaded anew next time."""
        assert state.spec is not None
        await self._stand_at(state)
        self._session = None
        spec, number = state.spec, state.step + 1
        prepared = prepare(groups, spec, state.step)
        recipe = recipe_of(spec, state.step, state.pace)
        stats = await self.compute(partial(self._learner.accumulate, prepared.rows.rows, recipe))
        check_mismatch(stats, spec.training.mismatch_limit)
        grad_norm = await self.compute(self._learner.apply)
        checkpoint = await self.compute(partial(self._save, state.run_id, number))
        policy = await self._policy_of(state.run_id, number, checkpoint)
        self._session = (state.run_id, checkpoint.sha256)
        alarm = mismatch_alarm(stats, spec.training.mismatch_kl_alarm)
        metrics = all_metrics(stats, prepared, grad_norm, state.step) | {"mismatch_alarm": float(bool(alarm))}
        return TrainedStep(checkpoint, policy, prepared, stats, metrics, alarm)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run blocking work beside the event loop, to its end even when the caller is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, work))

    async def _stand_at(self, state: RunState) -> None:
        """Have the learner hold the weights that the run's last event names."""
        assert state.spec is not None
        sha256 = state.steps[-1].checkpoint_sha256 if state.steps else ""
        if self._session == (state.run_id, sha256):
            return
        self._session = None
        optimiser = optimiser_of(state.spec)
        if state.steps:
            await self._restore(state, Checkpoint(state.steps[-1].checkpoint_uri, sha256), optimiser)
        else:
            async with self._fetched(state) as folder:
                await self.compute(partial(self._learner.start, folder, optimiser))
        self._session = (state.run_id, sha256)

    async def _restore(self, state: RunState, checkpoint: Checkpoint, optimiser: Optimiser) -> None:
        folder = await self.compute(partial(self._checkpoints.open, checkpoint))
        if not optimiser.lora_rank:
            await self.compute(partial(self._learner.restore, folder, optimiser))
            return
        async with self._fetched(state) as base:
            await self.compute(partial(self._learner.restore, folder, optimiser, base))

    @asynccontextmanager
    async def _fetched(self, state: RunState) -> AsyncIterator[Path]:
        """The first policy, which is the model that training began with, where every rank can read it."""
        scratch = await self.compute(partial(self._checkpoints.workspace, state.run_id))
        try:
            yield await self._blobs.fetch_folder(state.policies[0].uri, scratch)
        finally:
            await self.compute(partial(shutil.rmtree, scratch, ignore_errors=True))

    def _save(self, run_id: str, step: int) -> Checkpoint:
        workspace = self._checkpoints.workspace(run_id)
        self._learner.save(workspace)
        return self._checkpoints.commit(run_id, step, workspace)

    async def _policy_of(self, run_id: str, step: int, checkpoint: Checkpoint) -> PolicyFolder:
        """The policy of a checkpoint: its own model folder, or one made for engines where adapters are trained."""
        model = Path(checkpoint.uri.removeprefix("file://")) / MODEL_FOLDER
        if await asyncio.to_thread(model.is_dir):
            return await self._put_policy(run_id, step, model)
        with TemporaryDirectory(prefix="policy-") as folder:
            return await self._publish(run_id, step, Path(folder))

    async def _publish(self, run_id: str, step: int, scratch: Path) -> PolicyFolder:
        await self.compute(partial(self._learner.publish, scratch / MODEL_FOLDER))
        return await self._put_policy(run_id, step, scratch / MODEL_FOLDER)

    async def _put_policy(self, run_id: str, step: int, folder: Path) -> PolicyFolder:
        digest = await self.compute(partial(self._digest, folder))
        uri = await self._blobs.put_folder(f"{POLICY_ROOT}/{run_id}/{step:06d}-{digest[:12]}", folder)
        size_bytes = sum(path.stat().st_size for path in await asyncio.to_thread(_files, folder))
        return PolicyFolder(uri, digest, size_bytes, (folder / ADAPTER_FOLDER).is_dir())


def recipe_of(spec: RunSpec, policy_step: int, pace: Pace) -> Recipe:
    """How a resolved spec wants the batch after a step computed, at the run's pace."""
    training = spec.training
    return Recipe(
        loss_of(training),
        policy_step,
        training.micro_batch_tokens,
        merge_prefixes=training.merge_prefixes,
        activation_checkpointing=training.activation_checkpointing,
        pace=pace,
    )


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def optimiser_of(spec: RunSpec) -> Optimiser:
    """The optimiser's settings in a resolved spec."""
    training = spec.training
    return Optimiser(
        training.learning_rate,
        training.weight_decay,
        training.adam_beta1,
        training.adam_beta2,
        training.max_grad_norm,
        spec.seed,
        lora_rank=training.lora_rank,
        lora_alpha=training.lora_alpha or training.lora_rank,
        base=spec.model.path,
        mtp_top_k=training.mtp_top_k,
        mtp_learning_rate=training.mtp_learning_rate,
    )
