"""What the trainer needs from outside, as protocols: a learner, a place for checkpoints, a scorer, a place for curves.

It refuses to name an adapter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.trainer.domain.guard import BatchStats
from services.trainer.domain.losses import Loss
from services.trainer.domain.rows import Row


@dataclass(frozen=True, slots=True)
class Optimiser:
    """AdamW's settings, and the seed of everything random in training."""

    learning_rate: float
    weight_decay: float
    beta1: float
    beta2: float
    max_grad_norm: float
    seed: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a batch becomes a gradient. `policy_step`: the step whose weights are being trained."""

    loss: Loss
    policy_step: int
    micro_batch_tokens: int


class Learner(Protocol):
    """Weights and their optimiser. Every method blocks for as long as it computes; one at a time."""

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """Load a Hugging Face model directory with a fresh optimiser. Raises StepRefused when it can't be used."""
        ...

    def restore(self, checkpoint: Path, optimiser: Optimiser) -> None:
        """Load what `save` wrote. Raises StepRefused."""
        ...

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """Forward and backward over the whole batch; weights stay. Raises StepRefused, naming the episode."""
        ...

    def apply(self) -> float:
        """Clip, take the step, forget the gradients; returns the norm before clipping. Raises StepRefused."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights (`model/`, a Hugging Face directory), optimiser and random state into an empty folder."""
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

    def record(self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """All steps so far; the last one is new."""
        ...

    def forget(self, run_id: str) -> None:
        """Remove the run's files."""
        ...
