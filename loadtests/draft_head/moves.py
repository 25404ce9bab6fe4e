"""Two ways in which the policy moves: by its reward, and by a drift that keeps it as undecided as it was.

Reinforcement learning makes a policy surer of itself, which flatters any draft. The drift pulls the policy towards its
start tilted by a random taste for tokens, so that it goes as far, and its entropy stays.
"""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from loadtests.draft_head.measure import hidden
from loadtests.draft_head.policy import Floats, Sampled


class Move(Protocol):
    """What the policy is pulled by."""

    def advantages(self, model: Any, batch: Sampled) -> Floats:
        """The advantage of each sampled token of the batch."""
        ...


class ByReward:
    """The environment's own verdict, leave one out."""

    def advantages(self, model: Any, batch: Sampled) -> Floats:
        """See Move.advantages."""
        return batch.advantages()


class ByTaste:
    """Towards p_start(token) * exp(taste(token)), the same taste everywhere: minus KL to it is the reward per token."""

    def __init__(self, start: Any, strength: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._start = start
        self._taste_V = strength * torch.randn(start.config.vocab_size, generator=generator)

    @torch.no_grad()
    def advantages(self, model: Any, batch: Sampled) -> Floats:
        """The token's own gain over the mean gain at its place; exact, so that nothing has to be estimated."""
        forest, targets = batch.forest()
        before, ids_N = torch.from_numpy(targets.predecessors_N), torch.from_numpy(targets.token_ids_N)
        now_NV: Tensor = torch.log_softmax(model.lm_head(hidden(model, forest)[before]), -1)
        wanted_NV = torch.log_softmax(
            torch.log_softmax(self._start.lm_head(hidden(self._start, forest)[before]), -1) + self._taste_V, -1
        )
        gain_NV = wanted_NV - now_NV
        mean_N1 = (now_NV.exp() * gain_NV).sum(-1, keepdim=True)
        gains_N: Tensor = (gain_NV - mean_N1).gather(1, ids_N[:, None])[:, 0]
        return np.asarray(gains_N.clamp(-5, 5), np.float64)
