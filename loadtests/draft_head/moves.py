"""How the policy moves: by its reward, by a drift that keeps it as undecided as it was, or not at all.

Reinforcement learning makes a policy surer of itself, which flatters any draft. The drift pulls the policy towards its
start tilted by a random taste for tokens. How hard, and at which temperature, is put right at every step, so that the
KL from the start follows a plan while the entropy stays.
"""

import math
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from loadtests.draft_head.measure import hidden
from loadtests.draft_head.policy import Floats, Sampled

PULL_AT_ONE_NAT = 4.0
"""Spread of the tilt, in nats, that is tried first for a KL of 1; the KL grows with its square."""
AT_ONCE, A_STEP = 0.6, 0.02
"""Most that the logarithms of tilt and temperature answer to what is missing now, and to what went on missing."""


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


class AtRest:
    """The policy stays where it is: what a head makes of further training alone."""

    def advantages(self, model: Any, batch: Sampled) -> Floats:
        """See Move.advantages."""
        return np.zeros_like(batch.advantages())


class ByTaste:
    """Towards p_start(token)^(1/temperature) * exp(strength * taste(token)): minus KL to it is the reward per token.

    The taste is the same everywhere, standard normal over the vocabulary. `kl_a_step`: what the KL from the start is to
    grow by at each step, in nats a token.
    """

    def __init__(self, start: Any, kl_a_step: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._start = start
        self._taste_V = torch.randn(start.config.vocab_size, generator=generator)
        self._kl_a_step = kl_a_step
        self._wanted_kl = 0.0
        self._wanted_entropy: float | None = None
        self._pull, self._warmth = _Steering(), _Steering()

    @torch.no_grad()
    def advantages(self, model: Any, batch: Sampled) -> Floats:
        """The token's own gain over the mean gain at its place; exact, so that nothing has to be estimated."""
        forest, targets = batch.forest()
        before, ids_N = torch.from_numpy(targets.predecessors_N), torch.from_numpy(targets.token_ids_N)
        now_NV, then_NV = (torch.log_softmax(m.lm_head(hidden(m, forest)[before]), -1) for m in (model, self._start))
        pull, temperature = self._steer(now_NV, then_NV)
        pull_NV = then_NV / temperature + pull * self._taste_V
        gain_NV = torch.log_softmax(pull_NV, -1) - now_NV
        mean_N1 = (now_NV.exp() * gain_NV).sum(-1, keepdim=True)
        gains_N: Tensor = (gain_NV - mean_N1).gather(1, ids_N[:, None])[:, 0]
        return np.asarray(gains_N.clamp(-5, 5), np.float64)

    def _steer(self, now_NV: Tensor, then_NV: Tensor) -> tuple[float, float]:
        """The tilt's spread in nats, and the temperature."""
        kl = float((now_NV.exp() * (now_NV - then_NV)).sum(-1).mean())
        entropy = float(-(now_NV.exp() * now_NV).sum(-1).mean())
        if self._wanted_entropy is None:
            self._wanted_entropy = entropy
        self._wanted_kl += self._kl_a_step
        pull = self._pull.factor((self._wanted_kl - kl) / max(self._wanted_kl, 0.1))
        temperature = self._warmth.factor((self._wanted_entropy - entropy) / self._wanted_entropy)
        return PULL_AT_ONE_NAT * math.sqrt(self._wanted_kl) * pull, temperature


class _Steering:
    """A factor around 1 that answers to the share of something that is missing (negative: that is too much)."""

    def __init__(self) -> None:
        self._gathered = 0.0

    def factor(self, missing: float) -> float:
        wanted = max(-1.0, min(1.0, 2 * missing))
        self._gathered += A_STEP * wanted
        return math.exp(self._gathered + AT_ONCE * wanted)
