"""One optimiser step, from a manifest to a durable checkpoint and a folder that engines can load.

Its effects may happen again after a crash, with the same result; nothing counts before the caller commits. It refuses
to decide which batch is next.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from forgerl.common.v1.blob_pb2 import BlobRef
from forgerl.common.v1.run_pb2 import BASELINE_KIND_TURN_ALIGNED, RunSpec
from forgerl.events.v1.trainer_pb2 import PolicyPublished
from forgerl.scheduler.v1.manifest_pb2 import BatchManifest

from services.contract.rewards import RewardWeights
from services.kernel.blobs import Blobs
from services.trainer.domain.episodes import EpisodeInput, EpisodePlan, plan_batch
from services.trainer.domain.guard import BatchStats, check_mismatch
from services.trainer.domain.losses import Cispo
from services.trainer.domain.metrics import reward_metrics, staleness_metrics, step_metrics
from services.trainer.domain.rows import RowRules, batch_rows, merge_count
from services.trainer.domain.run_state import RunState
from services.trainer.ports import Checkpoint, Checkpoints, Learner, Optimiser, Recipe

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
    """What a step left behind; `plans` in the manifest's order."""

    checkpoint: Checkpoint
    policy: "PolicyFolder"
    plans: tuple[EpisodePlan, ...]
    stats: BatchStats
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class PolicyFolder:
    """A folder that an engine can load, and the digest of its weights."""

    uri: str
    digest: str


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

    async def first_policy(self, run_id: str, spec: RunSpec) -> PolicyFolder:
        """Load the run's model and put its folder where engines find it. Raises StepRefused."""
        self._session = None
        with TemporaryDirectory(prefix="policy-") as folder:
            await self.compute(partial(self._learner.start, Path(spec.model.path), optimiser_of(spec)))
            await self.compute(partial(self._learner.save, Path(folder)))
            policy = await self._put_policy(run_id, 0, Path(folder) / "model")
        self._session = (run_id, "")
        return policy

    async def step(self, state: RunState, groups: Sequence[Sequence[EpisodeInput]]) -> TrainedStep:
        """Train the batch after the run's last step. Raises StepRefused; the weights are then loaded anew next time."""
        assert state.spec is not None
        await self._stand_at(state)
        self._session = None
        spec, number = state.spec, state.step + 1
        weights = RewardWeights(spec.reward.alpha, spec.reward.beta, spec.reward.gamma, spec.reward.time_base_s)
        aligned = spec.training.baseline == BASELINE_KIND_TURN_ALIGNED
        plans = plan_batch(groups, weights, turn_aligned=aligned)
        rows = batch_rows(plans, RowRules(state.step)).rows
        recipe = Recipe(Cispo(spec.training.cispo_cap), state.step, spec.training.micro_batch_tokens)
        stats = await self.compute(partial(self._learner.accumulate, rows, recipe))
        check_mismatch(stats, spec.training.mismatch_limit)
        grad_norm = await self.compute(self._learner.apply)
        checkpoint = await self.compute(partial(self._save, state.run_id, number))
        folder = Path(checkpoint.uri.removeprefix("file://"))
        policy = await self._put_policy(state.run_id, number, folder / "model")
        self._session = (state.run_id, checkpoint.sha256)
        metrics = step_metrics(stats, merge_count(plans), grad_norm)
        metrics |= reward_metrics(plans) | staleness_metrics(plans, state.step)
        return TrainedStep(checkpoint, policy, tuple(plans), stats, metrics)

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
            checkpoint = Checkpoint(state.steps[-1].checkpoint_uri, sha256)
            folder = await self.compute(partial(self._checkpoints.open, checkpoint))
            await self.compute(partial(self._learner.restore, folder, optimiser))
        else:
            await self._start_from(state.policies[0], optimiser)
        self._session = (state.run_id, sha256)

    async def _start_from(self, policy: PolicyPublished, optimiser: Optimiser) -> None:
        with TemporaryDirectory(prefix="policy-") as scratch:
            folder = await self._blobs.fetch_folder(policy.uri, Path(scratch))
            await self.compute(partial(self._learner.start, folder, optimiser))

    def _save(self, run_id: str, step: int) -> Checkpoint:
        workspace = self._checkpoints.workspace(run_id)
        self._learner.save(workspace)
        return self._checkpoints.commit(run_id, step, workspace)

    async def _put_policy(self, run_id: str, step: int, folder: Path) -> PolicyFolder:
        digest = await self.compute(partial(self._digest, folder))
        uri = await self._blobs.put_folder(f"{POLICY_ROOT}/{run_id}/{step:06d}-{digest[:12]}", folder)
        return PolicyFolder(uri, digest)


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
    )
