"""Scores tokens under a published policy, from the very folder that engines load. Keeps the last folder's loaded.

It refuses ids outside the vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from services.kernel.errors import InvalidInput
from services.trainer.adapters.model_folder import load_model
from services.trainer.adapters.token_logprobs import transformed_logprobs


class PolicyScorer:
    """See ports.Scorer."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._model: Any = None

    def score(self, policy: Path, token_ids: Sequence[int], temperature: float) -> list[float]:
        """See Scorer.score."""
        if self._folder != policy:
            self._model = load_model(policy)
            self._model.eval()
            self._folder = policy
        vocabulary = int(self._model.config.vocab_size)
        outside = [token for token in token_ids if token >= vocabulary]
        if outside:
            raise InvalidInput("token_ids", outside[0], f"0..{vocabulary - 1}")
        if len(token_ids) < 2:
            return [0.0] * len(token_ids)
        ids_T = torch.tensor(list(token_ids), dtype=torch.long)
        with torch.no_grad():
            logits_TV = self._model(input_ids=ids_T.unsqueeze(0), use_cache=False).logits[0, :-1]
        count = len(token_ids) - 1
        logprobs_T = transformed_logprobs(logits_TV, ids_T[1:], torch.full((count,), temperature), torch.ones(count))
        return [0.0, *logprobs_T.tolist()]
