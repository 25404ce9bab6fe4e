"""The warm-up: next-token training on demonstrations, with loss on the model's own tokens only.

It refuses to look at held-out tasks; `episodes.py` does that afterwards.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen3ForCausalLM

from services.cli.model.demonstrations import Demonstrator
from services.cli.model.muon import Muon
from services.cli.model.tokenizer import ChatTokenizer
from services.cli.model.tokens import ConversationTokeniser, TokenisedConversation

IGNORED = -100
BATCH_CONVERSATIONS = 32
MICRO_BATCHES = 3
# First the skills, from good demonstrations alone; then the mix that leaves the choice among them open.
SKILLS_SHARE_OF_STEPS = 0.65
DOMAIN_SHARES = {"reasoning": 0.4, "tool": 0.15, "qa": 0.45}
MATRIX_RATE = 0.02
OTHER_RATE = 3e-3
RISING_STEPS = 40
LEVEL_SHARE_OF_STEPS = 0.5
LAST_SHARE_OF_RATE = 0.03
BETAS = (0.9, 0.95)
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class WarmupProgress:
    """Where the warm-up stands after a step. `loss`: mean over the batch's own tokens, in nats."""

    step: int
    steps: int
    loss: float


class Warmup:
    """Trains one network, one batch at a time."""

    def __init__(
        self, network: Qwen3ForCausalLM, tokenizer: ChatTokenizer, demonstrator: Demonstrator, seed: int
    ) -> None:
        self._network = network
        self._pad_id = tokenizer.padding
        self._tokeniser = ConversationTokeniser(tokenizer)
        self._demonstrator = demonstrator
        self._rng = random.Random(seed)
        matrices = [p for name, p in network.named_parameters() if p.ndim == 2 and ".layers." in name]
        others = [p for name, p in network.named_parameters() if not (p.ndim == 2 and ".layers." in name)]
        self._optimizers: tuple[torch.optim.Optimizer, ...] = (
            Muon(matrices, MATRIX_RATE),
            torch.optim.AdamW(others, lr=OTHER_RATE, betas=BETAS, weight_decay=0.0),
        )

    def run(self, steps: int, on_progress: Callable[[WarmupProgress], None]) -> None:
        """Take all steps; blocks for their whole time."""
        self._network.train()
        for step in range(1, steps + 1):
            share = share_of_rate(step, steps)
            for optimizer, rate in zip(self._optimizers, (MATRIX_RATE, OTHER_RATE), strict=True):
                for group in optimizer.param_groups:
                    group["lr"] = rate * share
            on_progress(
                WarmupProgress(
                    step, steps, self._step(asyncio.run(self._batch(mixed=step > SKILLS_SHARE_OF_STEPS * steps)))
                )
            )
        self._network.eval()

    async def _batch(self, mixed: bool) -> list[TokenisedConversation]:
        domains = self._rng.choices(list(DOMAIN_SHARES), list(DOMAIN_SHARES.values()), k=BATCH_CONVERSATIONS)
        return [self._tokeniser.tokenised(await self._demonstrator.draw(domain, mixed)) for domain in domains]

    def _step(self, batch: Sequence[TokenisedConversation]) -> float:
        by_length = sorted(batch, key=lambda conversation: len(conversation.ids))
        own_count = sum(sum(conversation.own) for conversation in batch)
        size = math.ceil(len(batch) / MICRO_BATCHES)
        loss_sum = 0.0
        self._network.zero_grad(set_to_none=True)
        for first in range(0, len(by_length), size):
            ids_BT, labels_BT = padded(by_length[first : first + size], self._pad_id)
            # Padding stands on the right, where causal attention never sees it: no mask is needed.
            hidden_BTD = self._network.model(input_ids=ids_BT[:, :-1], use_cache=False).last_hidden_state
            own_BT = labels_BT[:, 1:] != IGNORED
            logits_NV = self._network.lm_head(hidden_BTD[own_BT])
            loss = cross_entropy(logits_NV, labels_BT[:, 1:][own_BT], reduction="sum") / own_count
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), MAX_GRADIENT_NORM)
        for optimizer in self._optimizers:
            optimizer.step()
        return loss_sum


def share_of_rate(step: int, steps: int) -> float:
    """Linear rise over the first 40 steps (a tenth of the whole at most), level to the middle, then down in a line."""
    rising = max(1, min(RISING_STEPS, steps // 10))
    level_until = LEVEL_SHARE_OF_STEPS * steps
    if step <= level_until:
        return min(1.0, step / rising)
    return max(LAST_SHARE_OF_RATE, (steps - step) / (steps - level_until))


def padded(conversations: Sequence[TokenisedConversation], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids_BT padded on the right, and labels_BT that ignore all but the model's own tokens."""
    longest = max(len(conversation.ids) for conversation in conversations)
    ids_BT = torch.full((len(conversations), longest), pad_id)
    labels_BT = torch.full((len(conversations), longest), IGNORED)
    for row, conversation in enumerate(conversations):
        ids = torch.tensor(conversation.ids)
        ids_BT[row, : len(ids)] = ids
        labels_BT[row, : len(ids)] = torch.where(torch.tensor(conversation.own), ids, IGNORED)
    return ids_BT, labels_BT
