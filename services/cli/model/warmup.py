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
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from services.cli.model.demonstrations import Demonstrator
from services.cli.model.tokens import TokenisedConversation, tokenised

IGNORED = -100
BATCH_CONVERSATIONS = 96
MICRO_BATCHES = 4
DOMAIN_SHARES = {"reasoning": 0.4, "tool": 0.2, "qa": 0.4}
PEAK_RATE = 2e-3
FINAL_RATE = 1e-4
RISING_STEPS = 100
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
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
        self, network: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, demonstrator: Demonstrator, seed: int
    ) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._demonstrator = demonstrator
        self._rng = random.Random(seed)
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)

    def run(self, steps: int, on_progress: Callable[[WarmupProgress], None]) -> None:
        """Take all steps; blocks for their whole time."""
        self._network.train()
        for step in range(1, steps + 1):
            for group in self._optimizer.param_groups:
                group["lr"] = rate_at(step, steps)
            on_progress(WarmupProgress(step, steps, self._step(asyncio.run(self._batch()))))
        self._network.eval()

    async def _batch(self) -> list[TokenisedConversation]:
        domains = self._rng.choices(list(DOMAIN_SHARES), list(DOMAIN_SHARES.values()), k=BATCH_CONVERSATIONS)
        return [tokenised(await self._demonstrator.draw(domain), self._tokenizer) for domain in domains]

    def _step(self, batch: Sequence[TokenisedConversation]) -> float:
        by_length = sorted(batch, key=lambda conversation: len(conversation.ids))
        own_count = sum(sum(conversation.own) for conversation in batch)
        size = math.ceil(len(batch) / MICRO_BATCHES)
        loss_sum = 0.0
        self._optimizer.zero_grad(set_to_none=True)
        for first in range(0, len(by_length), size):
            ids_BT, labels_BT = padded(by_length[first : first + size], self._tokenizer.pad_token_id)
            # Padding stands on the right, where causal attention never sees it: no mask is needed.
            logits_BTV = self._network(input_ids=ids_BT[:, :-1], use_cache=False).logits
            loss = cross_entropy(logits_BTV.flatten(0, 1), labels_BT[:, 1:].flatten(), reduction="sum") / own_count
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        return loss_sum


def rate_at(step: int, steps: int) -> float:
    """Linear rise over the first steps (a tenth of the whole at most), then a cosine down to the final rate."""
    rising = max(1, min(RISING_STEPS, steps // 10))
    if step <= rising:
        return PEAK_RATE * step / rising
    turned = math.cos(math.pi * (step - rising) / max(1, steps - rising))
    return FINAL_RATE + (PEAK_RATE - FINAL_RATE) * (1 + turned) / 2


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
