"""The learner in torch: one process, float32, AdamW. It refuses numbers that aren't finite, and names their episode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.trainer.adapters.batch_pass import BatchPass, clear_gradients
from services.trainer.adapters.model_folder import check_tokenizer, load_model, read_companions, save_model
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.packing import halves
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row
from services.trainer.ports import Optimiser, Ranks, Recipe
from services.trainer.ranks.alone import Alone

MODEL_FOLDER = "model"
OPTIMISER_FILE = "optimiser.pt"
RANDOM_FILE = "random.pt"


class TorchLearner:
    """See ports.Learner."""

    def __init__(self, threads: int, ranks: Ranks | None = None) -> None:
        self._threads = threads
        self._ranks: Ranks = ranks or Alone()
        self._model: Any = None
        self._optimiser: torch.optim.AdamW | None = None
        self._max_grad_norm = 1.0
        self._companions: dict[str, bytes] = {}

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """See Learner.start."""
        check_tokenizer(model)
        self._load(model, optimiser)
        torch.manual_seed(optimiser.seed)

    def restore(self, checkpoint: Path, optimiser: Optimiser) -> None:
        """See Learner.restore."""
        loaded = self._load(checkpoint / MODEL_FOLDER, optimiser)
        try:
            loaded.load_state_dict(torch.load(checkpoint / OPTIMISER_FILE, weights_only=True))
            torch.set_rng_state(torch.load(checkpoint / RANDOM_FILE, weights_only=True))
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise StepRefused(f"checkpoint {checkpoint} can't be loaded: {error}") from error
        # The run's settings are in force, also where they differ from those that the checkpoint was written under.
        for group in loaded.param_groups:
            group.update(lr=optimiser.learning_rate, weight_decay=optimiser.weight_decay)

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """See Learner.accumulate."""
        return self.accumulate_halves(halves(rows), recipe)

    def accumulate_halves(self, parts: Sequence[Sequence[Row]], recipe: Recipe) -> BatchStats:
        """See HalvesLearner.accumulate_halves."""
        torch.set_num_threads(self._threads)
        return BatchPass(self._model, recipe, self._ranks).run(parts)

    def apply(self) -> float:
        """See Learner.apply."""
        assert self._optimiser is not None
        norm: Tensor = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._max_grad_norm)
        if not bool(torch.isfinite(norm)):
            raise StepRefused("gradient norm is not finite")
        self._optimiser.step()
        clear_gradients(self._model)
        return float(norm)

    def save(self, folder: Path) -> None:
        """See Learner.save."""
        assert self._optimiser is not None
        save_model(self._model, self._companions, folder / MODEL_FOLDER)
        torch.save(self._optimiser.state_dict(), folder / OPTIMISER_FILE)
        torch.save(torch.get_rng_state(), folder / RANDOM_FILE)

    def _load(self, model: Path, optimiser: Optimiser) -> torch.optim.AdamW:
        torch.set_num_threads(self._threads)
        self._model = load_model(model)
        self._model.train()
        self._companions = read_companions(model)
        self._max_grad_norm = optimiser.max_grad_norm
        self._optimiser = torch.optim.AdamW(
            self._model.parameters(),
            lr=optimiser.learning_rate,
            betas=(optimiser.beta1, optimiser.beta2),
            weight_decay=optimiser.weight_decay,
        )
        return self._optimiser
