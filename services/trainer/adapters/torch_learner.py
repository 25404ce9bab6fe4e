"""The learner in torch: float32, AdamW, all weights or low-rank adapters, alone or as one of several ranks.

It refuses numbers that aren't finite, and names their episode.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from services.contract.policy_folder import ADAPTER_FOLDER
from services.trainer.adapters.batch_pass import BatchPass, clear_gradients
from services.trainer.adapters.draft_training import DraftTraining, draft_settings
from services.trainer.adapters.gradient_norms import norm_histogram, parameter_squares
from services.trainer.adapters.low_rank import adapt, load_adapter, merged, save_adapter
from services.trainer.adapters.model_folder import (
    check_tokenizer,
    load_model,
    read_companions,
    save_model,
    weights_digest,
)
from services.trainer.adapters.optimiser_files import SEED_STRIDE, load_optimiser, save_optimiser
from services.trainer.adapters.pace import measure_pace
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.merging import Pace
from services.trainer.domain.packing import halves
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row
from services.trainer.ports import MODEL_FOLDER, Optimiser, Ranks, Recipe
from services.trainer.ranks.alone import Alone
from services.trainer.ranks.sharding import full
from services.trainer.ranks.together import together

OPTIMISER_FOLDER = "optimiser"


class TorchLearner:
    """See ports.HalvesLearner."""

    def __init__(self, threads: int, ranks: Ranks | None = None) -> None:
        self._threads = threads
        self._ranks: Ranks = ranks or Alone()
        self._model: Any = None
        self._optimiser: torch.optim.AdamW | None = None
        self._settings: Optimiser | None = None
        self._companions: dict[str, bytes] = {}
        self._draft: DraftTraining | None = None

    def start(self, model: Path, optimiser: Optimiser) -> None:
        """See Learner.start."""
        together(self._ranks, partial(check_tokenizer, model))
        self._load(model, None, optimiser)
        if self._draft is not None:
            together(self._ranks, partial(self._draft.start, model))
        torch.manual_seed(optimiser.seed + SEED_STRIDE * self._ranks.rank)

    def restore(self, checkpoint: Path, optimiser: Optimiser, base: Path | None = None) -> None:
        """See Learner.restore."""
        if optimiser.lora_rank:
            assert base is not None
            self._load(base, checkpoint / ADAPTER_FOLDER, optimiser)
        else:
            self._load(checkpoint / MODEL_FOLDER, None, optimiser)
        assert self._optimiser is not None
        try:
            load_optimiser(
                checkpoint / OPTIMISER_FOLDER, self._model, self._optimiser, self._ranks, seed=optimiser.seed
            )
        except (OSError, KeyError, ValueError, RuntimeError, CheckpointException) as error:
            raise StepRefused(f"checkpoint {checkpoint} can't be loaded: {error}") from error
        if self._draft is not None:
            together(self._ranks, partial(self._draft.restore, checkpoint))

    def measure_pace(self, recipe: Recipe) -> Pace:
        """See Learner.measure_pace."""
        torch.set_num_threads(self._threads)
        with self._ranks.whole(self._model):
            return measure_pace(self._model, recipe)

    def accumulate(self, rows: Sequence[Row], recipe: Recipe) -> BatchStats:
        """See Learner.accumulate."""
        return self.accumulate_halves(halves(rows), recipe)

    def accumulate_halves(self, parts: Sequence[Sequence[Row]], recipe: Recipe) -> BatchStats:
        """See HalvesLearner.accumulate_halves."""
        torch.set_num_threads(self._threads)
        trained = [[row for row in part if row.trained_tokens] for part in parts]
        if self._draft is not None:
            self._draft.forget()
        beside = self._draft.beside if self._draft is not None else None
        stats = BatchPass(self._model, recipe, self._ranks, beside).run(trained)
        norms = norm_histogram(self._ranks.gather(parameter_squares(self._model)))
        figures = self._draft.figures() if self._draft is not None else {}
        return replace(stats, histograms={**stats.histograms, "parameter_grad_norm": norms}, draft=figures)

    def apply(self) -> float:
        """See Learner.apply."""
        assert self._optimiser is not None
        assert self._settings is not None
        norm: Tensor = full(torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.max_grad_norm))
        if not bool(torch.isfinite(norm)):
            raise StepRefused("gradient norm is not finite")
        if self._draft is not None:
            self._draft.apply()
        self._optimiser.step()
        clear_gradients(self._model)
        return float(norm)

    def save(self, folder: Path) -> None:
        """See Learner.save."""
        assert self._optimiser is not None
        assert self._settings is not None
        if self._settings.lora_rank:
            adapters = self._whole(only_trained=True)
            if self._ranks.rank == 0:
                save_adapter(adapters, self._settings, folder / ADAPTER_FOLDER)
        else:
            self.publish(folder / MODEL_FOLDER)
        save_optimiser(folder / OPTIMISER_FOLDER, self._model, self._optimiser, self._ranks)
        if self._draft is not None:
            self._draft.save(folder)

    def publish(self, folder: Path) -> None:
        """See Learner.publish."""
        assert self._settings is not None
        weights = self._whole(only_trained=False)
        if self._ranks.rank:
            return
        if self._settings.lora_rank:
            save_adapter(weights, self._settings, folder / ADAPTER_FOLDER)
            weights = merged(weights, self._settings.lora_alpha / self._settings.lora_rank)
        save_model(self._model, weights, self._companions, folder)
        if self._draft is not None:
            self._draft.publish(folder, weights_digest(folder))

    def _whole(self, *, only_trained: bool) -> dict[str, Tensor]:
        """Parameters, and buffers that are saved, at rank 0. All ranks call it."""
        saved = self._model.state_dict().keys()
        buffers = ((name, buffer) for name, buffer in self._model.named_buffers() if name in saved)
        parameters = (
            (name, parameter)
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad or not only_trained
        )
        return self._ranks.full(parameters) | ({} if only_trained else dict(buffers))

    def _load(self, model: Path, adapter: Path | None, optimiser: Optimiser) -> None:
        torch.set_num_threads(self._threads)
        self._draft = None
        self._model = together(self._ranks, partial(load_model, model))
        if optimiser.mtp_top_k:
            # Of the model's own layers: not of what is wrapped around them, and not of a rank's part.
            self._draft = DraftTraining(self._model, draft_settings(optimiser), self._ranks)
        together(self._ranks, partial(_adapt, self._model, adapter, optimiser))
        self._companions = read_companions(model)
        self._settings = optimiser
        self._ranks.shard(self._model)
        self._optimiser = torch.optim.AdamW(
            [parameter for parameter in self._model.parameters() if parameter.requires_grad],
            lr=optimiser.learning_rate,
            betas=(optimiser.beta1, optimiser.beta2),
            weight_decay=optimiser.weight_decay,
        )


def _adapt(model: Any, adapter: Path | None, optimiser: Optimiser) -> None:
    if optimiser.lora_rank:
        adapt(model, optimiser)
        if adapter is not None:
            load_adapter(model, adapter)
    model.train()
