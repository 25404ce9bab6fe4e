"""Rank 0's learner: tells the other ranks each call, with their share of the rows, and makes it itself.

It refuses to compute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.kernel.errors import Transient
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.merging import Pace
from services.trainer.domain.packing import halves
from services.trainer.domain.refusal import StepRefused
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
    """See ports.Learner. `on_lost` is told of any failure that isn't a refusal: ranks are then out of step for good."""

    def __init__(self, learner: HalvesLearner, commands: Commands, on_lost: Callable[[BaseException], None]) -> None:
        self._learner = learner
        self._commands = commands
        self._on_lost = on_lost

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """See Learner.start."""
        self._all("start", model, optimiser)

    def restore(self, checkpoint: Path, optimiser: Optimiser, base: Path | None = None) -> None:
        """See Learner.restore."""
        self._all("restore", checkpoint, optimiser, base)

    def measure_pace(self, recipe: Recipe) -> Pace:
        """See Learner.measure_pace; rank 0's."""
        return self._all("measure_pace", recipe)

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """See Learner.accumulate."""
        # Halves come first, so that the noise estimate is that of one process.
        merged = recipe.merge_prefixes
        first, second = (shares(half, self._commands.size, merged=merged) for half in halves(rows))
        commands = [Command("accumulate_halves", (pair, recipe)) for pair in zip(first, second, strict=True)]
        return self._do(commands)

    def apply(self) -> float:
        """See Learner.apply."""
        return self._all("apply")

    def save(self, folder: Path) -> None:
        """See Learner.save."""
        self._all("save", folder)

    def publish(self, folder: Path) -> None:
        """See Learner.publish."""
        self._all("publish", folder)

    def _all(self, method: str, *arguments: Any) -> Any:
        return self._do([Command(method, arguments)] * self._commands.size)

    def _do(self, commands: Sequence[Command]) -> Any:
        try:
            mine: Command = self._commands.scatter(commands)
            return getattr(self._learner, mine.method)(*mine.arguments)
        except StepRefused:
            raise
        except Exception as error:
            self._on_lost(error)
            raise Transient(f"ranks are out of step: {error}") from error
