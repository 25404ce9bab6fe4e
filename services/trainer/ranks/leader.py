"""Rank 0's learner: tells the other ranks each call, with their share of the rows, and makes it itself.

It refuses to compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.trainer.domain.guard import BatchStats
from services.trainer.domain.packing import halves
from services.trainer.domain.rows import Row
from services.trainer.ports import HalvesLearner, Optimiser, Recipe
from services.trainer.ranks.shares import shares


@dataclass(frozen=True, slots=True)
class Command:
    """A learner's method and this rank's arguments."""

    method: str
    arguments: tuple[Any, ...]


class Commands(Protocol):
    """The way to the followers."""

    size: int

    def scatter(self, values: Sequence[Any] | None) -> Any:
        """One value a rank."""
        ...


class RankedLearner:
    """See ports.Learner."""

    def __init__(self, learner: HalvesLearner, commands: Commands) -> None:
        self._learner = learner
        self._commands = commands

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """See Learner.start."""
        self._all(Command("start", (model, optimiser)))
        self._learner.start(model, optimiser)

    def restore(self, checkpoint: Path, optimiser: Optimiser, base: Path | None = None) -> None:
        """See Learner.restore."""
        self._all(Command("restore", (checkpoint, optimiser, base)))
        self._learner.restore(checkpoint, optimiser, base)

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """See Learner.accumulate."""
        # Halves come first, so that the noise estimate is that of one process.
        first, second = (shares(half, self._commands.size) for half in halves(rows))
        dealt = list(zip(first, second, strict=True))
        self._commands.scatter([Command("accumulate_halves", (share, recipe)) for share in dealt])
        return self._learner.accumulate_halves(dealt[0], recipe)

    def apply(self) -> float:
        """See Learner.apply."""
        self._all(Command("apply", ()))
        return self._learner.apply()

    def save(self, folder: Path) -> None:
        """See Learner.save."""
        self._all(Command("save", (folder,)))
        self._learner.save(folder)

    def publish(self, folder: Path) -> None:
        """See Learner.publish."""
        self._all(Command("publish", (folder,)))
        self._learner.publish(folder)

    def _all(self, command: Command) -> None:
        self._commands.scatter([command] * self._commands.size)
