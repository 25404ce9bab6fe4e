"""Exact figures of a batch: divergence from the start, entropy, and what a head's guesses are worth, in torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loadtests.draft_head.policy import Sampled
from services.trainer.adapters.draft_head import DraftHead
from services.trainer.tree.forest import Forest
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import WholeForest, hidden_states, on_trees


@dataclass(frozen=True, slots=True)
class Moved:
    """Means over a batch's sampled tokens, in nats: KL(policy || start), and the policy's entropy."""

    kl_from_start: float
    entropy: float


@dataclass(frozen=True, slots=True)
class Guesses:
    """Mean probability that a guess is accepted, over all tokens; mean tokens a verification of one guess.

    The second is over the tokens that are guessed at all: after an accepted guess one token comes for free.
    """

    acceptance: float
    tokens_per_verify: float


@torch.no_grad()
def hidden(model: Any, forest: Forest) -> Tensor:
    """Last hidden states of all slots."""
    with on_trees(model):
        return hidden_states(model, forest, WholeForest(plan_attention(forest)))


def moved(model: Any, start: Any, batch: Sampled) -> Moved:
    """How far the policy is from where it started, on tokens that it sampled itself."""
    forest, targets = batch.forest()
    before = torch.from_numpy(targets.predecessors_N)
    with torch.no_grad():
        now_NV, then_NV = (torch.log_softmax(m.lm_head(hidden(m, forest)[before]), -1) for m in (model, start))
        kl = (now_NV.exp() * (now_NV - then_NV)).sum(-1).mean()
        return Moved(float(kl), float(-(now_NV.exp() * now_NV).sum(-1).mean()))


@torch.no_grad()
def guesses(model: Any, head: DraftHead, batch: Sampled) -> Guesses:
    """Of a head with the policy as it is. An answer's first token is never guessed: nothing was drawn yet."""
    forest, _ = batch.forest()
    hidden_SE = hidden(model, forest)
    head_TE, slots_T = head(hidden_SE, forest)
    place_S = torch.full((len(hidden_SE),), -1)
    place_S[slots_T] = torch.arange(len(slots_T))
    sums = np.zeros(2)
    verified = np.zeros(2)
    for index, prompt in enumerate(batch.prompts):
        path = torch.from_numpy(forest.sample_slots(index))[prompt:]
        if len(path) < 2:
            continue
        before, ids = path[:-1], torch.from_numpy(batch.sequences[index][prompt + 1 :])
        p_NV = torch.softmax(model.lm_head(hidden_SE[before]), -1)
        q_NV = torch.softmax(model.lm_head(head_TE[place_S[before]]), -1)
        sums += float(torch.minimum(p_NV, q_NV).sum()), len(ids)
        taken = (q_NV.gather(1, ids[:, None]) / p_NV.gather(1, ids[:, None])).clamp(max=1)[:, 0]
        verified += verifications(taken.tolist())
    return Guesses(float(sums[0] / sums[1]), float(1 + verified[1] / verified[0]))


def verifications(probabilities: list[float]) -> tuple[float, float]:
    """Expected verifications, and accepted guesses, for tokens whose guess would be accepted with these probabilities.

    After an accepted guess the next token is drawn with it; after a refused one the next token is guessed again.
    """
    verified, accepted, guessed, free = 0.0, 0.0, 1.0, 0.0
    for probability in probabilities:
        verified += guessed
        accepted += guessed * probability
        guessed, free = free + guessed * (1 - probability), guessed * probability
    return verified, accepted
