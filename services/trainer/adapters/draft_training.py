"""Trains the draft head beside the policy: top-K divergence on the same forest, an optimiser of its own.

A batch's gradient adds up over as many forests as it has; `apply` divides by the tokens and takes the step. It refuses
to touch the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from services.trainer.adapters.draft_head import DraftHead, has_draft
from services.trainer.domain.distillation import acceptance, top_k_divergence
from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import Optimiser, Ranks
from services.trainer.tree.forest import Forest, Ints
from services.trainer.tree.scoring import head_weight, whole_model

DRAFT_FILE = "draft.pt"
CHUNK_ELEMENTS = 1 << 22
"""Logits made at once; they are made again in the backward pass."""


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """How many of the policy's likeliest tokens are matched one by one, and AdamW's rate and clip."""

    top_k: int
    learning_rate: float
    max_grad_norm: float


def draft_settings(optimiser: Optimiser) -> DraftSettings:
    """The head's part of the optimiser's settings."""
    return DraftSettings(optimiser.mtp_top_k, optimiser.mtp_learning_rate, optimiser.max_grad_norm)


class DraftTraining:
    """A head and its optimiser, for one policy object. Made before the policy is wrapped or sharded."""

    def __init__(self, policy: Any, settings: DraftSettings, ranks: Ranks) -> None:
        self.head = DraftHead(policy)
        self._policy = policy
        self._settings = settings
        self._ranks = ranks
        self._optimiser = torch.optim.AdamW(
            self.head.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._sums = [0.0, 0.0, 0.0]

    def beside(self, hidden_SE: Tensor, forest: Forest, slots: Ints) -> Tensor:
        """Sum over `slots` of KL(policy || head) for the token after each, a scalar whose gradient is the head's alone.

        A slot that is named k times counts k times, so that merging changes nothing. A root among the slots is left
        out: a head needs a token before it.
        """
        times_S = torch.bincount(torch.from_numpy(slots), minlength=len(hidden_SE))
        times_S[torch.from_numpy(forest.parents_S < 0)] = 0
        if not bool(times_S.any()):
            return hidden_SE.new_zeros(())
        head_TE, slots_T = self.head(hidden_SE.detach(), forest)
        times_T = times_S.to(slots_T.device)[slots_T]
        chosen_C = torch.nonzero(times_T)[:, 0]
        guess_CE, known_CE = head_TE[chosen_C], hidden_SE.detach()[slots_T[chosen_C]]
        weight_VE, bias_V = self._lm_head()
        score = _scorer(weight_VE, bias_V, self._settings.top_k)
        rows = max(64, CHUNK_ELEMENTS // len(weight_VE))
        total = hidden_SE.new_zeros(())
        for parts in zip(*(of.split(rows) for of in (guess_CE, known_CE, times_T[chosen_C])), strict=True):
            part, accepted = checkpoint(score, *parts, use_reentrant=False)  # pyright: ignore
            total = total + part
            self._note(float(part.detach()), float(accepted), int(parts[2].sum()))
        return total

    def figures(self) -> dict[str, float]:
        """Mean divergence and acceptance over all tokens since the last step; every rank makes this call."""
        divergence, accepted, tokens = self._all_sums()
        return {"mtp_kl": divergence / tokens, "mtp_acceptance": accepted / tokens} if tokens else {}

    def apply(self) -> None:
        """Take the step over all tokens since the last one, if there were any; every rank makes this call.

        Raises StepRefused where the gradient isn't finite.
        """
        tokens = self._all_sums()[2]
        if not tokens:
            return
        self._gather_gradients(tokens)
        norm = torch.nn.utils.clip_grad_norm_(self.head.parameters(), self._settings.max_grad_norm)
        if not bool(torch.isfinite(norm)):
            raise StepRefused("draft head: gradient norm is not finite")
        self._optimiser.step()
        self.forget()

    def forget(self) -> None:
        """Drop what has been gathered since the last step."""
        self._sums = [0.0, 0.0, 0.0]
        self._optimiser.zero_grad(set_to_none=True)

    def publish(self, folder: Path, policy_digest: str) -> None:
        """Write the head into a policy's folder."""
        self.head.save(folder, policy_digest)

    def start(self, model: Path) -> None:
        """Take the head that a model folder brings, if it does. Raises StepRefused."""
        if has_draft(model):
            self.head.load(model)

    def save(self, checkpoint_folder: Path) -> None:
        """Write head and optimiser into a checkpoint; all ranks hold the same."""
        if self._ranks.rank == 0:
            state = {"head": self.head.state_dict(), "optimiser": self._optimiser.state_dict()}
            torch.save(state, checkpoint_folder / DRAFT_FILE)

    def restore(self, checkpoint_folder: Path) -> None:
        """Take up what `save` wrote. Raises StepRefused."""
        try:
            state = torch.load(checkpoint_folder / DRAFT_FILE, weights_only=True)
            self.head.load_state_dict(state["head"])
            self._optimiser.load_state_dict(state["optimiser"])
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise StepRefused(f"checkpoint {checkpoint_folder}: draft head can't be loaded: {error}") from error
        # The run's setting is in force, also where the checkpoint was written under another.
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings.learning_rate

    def _lm_head(self) -> tuple[Tensor, Tensor | None]:
        bias: Tensor | None = whole_model(self._policy).lm_head.bias
        return head_weight(self._policy).detach(), None if bias is None else bias.detach()

    def _note(self, divergence: float, accepted: float, tokens: int) -> None:
        self._sums = [self._sums[0] + divergence, self._sums[1] + accepted, self._sums[2] + tokens]

    def _all_sums(self) -> list[float]:
        return [sum(part) for part in zip(*self._ranks.gather(self._sums), strict=True)]

    def _gather_gradients(self, tokens: float) -> None:
        gathered = self._ranks.gather([p.grad for p in self.head.parameters()])
        for index, parameter in enumerate(self.head.parameters()):
            parts = [gradients[index] for gradients in gathered]
            known = [part.to(parameter.device) for part in parts if part is not None]
            parameter.grad = torch.stack(known).sum(0) / tokens if known else None


def _scorer(
    weight_VE: Tensor, bias_V: Tensor | None, top_k: int
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Summed divergence and acceptance of rows of hidden states, the head's and the policy's, each so many times."""
    wide = torch.promote_types(weight_VE.dtype, torch.float32)

    def score(guess_CE: Tensor, known_CE: Tensor, times_C: Tensor) -> tuple[Tensor, Tensor]:
        draft_CV, policy_CV = (
            torch.nn.functional.linear(rows.to(wide), weight_VE.to(wide), bias_V) for rows in (guess_CE, known_CE)
        )
        with torch.no_grad():
            accepted = (times_C * acceptance(policy_CV, draft_CV)).sum()
        return (times_C * top_k_divergence(policy_CV, draft_CV, top_k)).sum(), accepted

    return score
