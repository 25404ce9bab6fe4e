"""What the trainer needs from outside, as protocols: a learner, a place for checkpoints, a scorer, a place for curves.

It refuses to name an adapter.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor

from services.trainer.domain.guard import BatchStats
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.losses import Loss
from services.trainer.domain.merging import FREE_CALLS, Pace
from services.trainer.domain.rows import Row

T = TypeVar("T")
MODEL_FOLDER = "model"
"""All weights, in a checkpoint: the very folder that is published."""


@dataclass(frozen=True, slots=True)
class Optimiser:
    """AdamW's settings, what it may change, and the seed of everything random in training.

    `lora_rank`: rank of the low-rank adapters that are trained instead of the weights; 0 = all weights are.
    `base`: what the adapters' files call the model under them.
    `mtp_top_k`: how many of the policy's likeliest tokens a draft head is matched on one by one; 0 = none is trained.
    """

    learning_rate: float
    weight_decay: float
    beta1: float
    beta2: float
    max_grad_norm: float
    seed: int
    lora_rank: int = 0
    lora_alpha: float = 0.0
    base: str = ""
    mtp_top_k: int = 0
    mtp_learning_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a batch becomes a gradient. `policy_step`: the step whose weights are being trained.

    `merge_prefixes`: shared tokens are computed once where that is exact and gains; `pace` decides where.
    `activation_checkpointing`: activations are recomputed in the backward pass.
    """

    loss: Loss
    policy_step: int
    micro_batch_tokens: int
    merge_prefixes: bool = True
    activation_checkpointing: bool = False
    pace: Pace = FREE_CALLS


class Learner(Protocol):
    """Weights and their optimiser. Every method blocks for as long as it computes; one at a time."""

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """Load a Hugging Face model directory with a fresh optimiser. Raises StepRefused when it can't be used."""
        ...

    def restore(self, checkpoint: Path, optimiser: Optimiser, base: Path | None = None) -> None:
        """Load what `save` wrote. `base`: the model under the adapters, where they are trained. Raises StepRefused."""
        ...

    def measure_pace(self, recipe: Recipe) -> Pace:
        """How fast this machine trains these weights so; nothing changes, and the recipe's own pace is not used."""
        ...

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """Forward and backward over the whole batch; weights stay. Raises StepRefused, naming the episode."""
        ...

    def apply(self) -> float:
        """Clip, take the step, forget the gradients; returns the norm before clipping. Raises StepRefused."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `restore` needs into an empty folder.

        Where all weights are trained, they are `model/` in it, the very folder that `publish` would write.
        """
        ...

    def publish(self, folder: Path) -> None:
        """Write the policy as a Hugging Face directory that engines load; adapters are merged, and stand beside it."""
        ...


class HalvesLearner(Learner, Protocol):
    """A learner that can be one of several ranks: it is given its share of the batch's two halves."""

    def accumulate_halves(self, parts: Sequence[Sequence[Row]], recipe: Recipe) -> BatchStats:
        """As `accumulate`; every rank at the same time, and the stats are those of the whole batch."""
        ...


class Ranks(Protocol):
    """The processes that train one model together: each makes the same calls in the same order. One is the default."""

    @property
    def rank(self) -> int:
        """This process, from 0."""
        ...

    @property
    def size(self) -> int:
        """All of them."""
        ...

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        ...

    def shard(self, model: Any) -> None:
        """Keep this rank's part of a model that all ranks have loaded."""
        ...

    def whole(self, model: Any) -> AbstractContextManager[None]:
        """Inside, the parameters are whole, and gradients are this rank's own; afterwards those are forgotten.

        A StepRefused that one rank raises inside is raised by all when they leave.
        """
        ...

    def summed(self, model: Any) -> AbstractContextManager[None]:
        """As `whole`; afterwards the gradients are the ranks' sum, added to what was there before."""
        ...

    def full(self, tensors: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors put together from all ranks' parts, at rank 0; the others get nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A durable folder, and the sha256 of the manifest that covers its files."""

    uri: str
    sha256: str


class Checkpoints(Protocol):
    """Durable folders that appear whole or not at all."""

    def workspace(self, run_id: str) -> Path:
        """An empty folder to write a checkpoint into."""
        ...

    def commit(self, run_id: str, step: int, workspace: Path) -> Checkpoint:
        """Make a workspace durable under its name. An equal one that is there already is kept."""
        ...

    def open(self, checkpoint: Checkpoint) -> Path:
        """The folder, every file checked. Raises StepRefused when it is missing or corrupt."""
        ...

    def keep_only(self, run_id: str, uris: set[str]) -> int:
        """Remove everything else of the run, workspaces included; returns the bytes freed."""
        ...


class Scorer(Protocol):
    """Log-probabilities under a published policy; blocks."""

    def score(self, policy: Path, token_ids: Sequence[int], temperature: float) -> list[float]:
        """Entry t is log p(token t | tokens before t); entry 0 is 0. Raises InvalidInput."""
        ...


class Curves(Protocol):
    """The run's metrics as files for people; may be told of a step twice."""

    def record(
        self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float]]], histograms: Mapping[str, Histogram]
    ) -> None:
        """All steps so far; the last one is new, and the histograms are its."""
        ...

    def forget(self, run_id: str) -> None:
        """Remove the run's files."""
        ...
