"""A small policy on real tasks: it samples in torch, and learns with the trainer's own passes."""

# transformers is partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoTokenizer

from services.environments.reasoning import ReasoningEnvironment
from services.trainer.adapters.draft_training import DraftTraining
from services.trainer.adapters.model_folder import load_model
from services.trainer.tree.forest import Forest, Ints, build_forest
from services.trainer.tree.head import Targets
from services.trainer.tree.passes import PassOptions, Scores, gradient_pass

Floats = NDArray[np.float64]

MAX_TOKENS = 96
BUDGET_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Sampled:
    """A batch: whole token sequences, how long each prompt is, rewards of the answers, group after group."""

    sequences: tuple[Ints, ...]
    prompts: tuple[int, ...]
    rewards: tuple[float, ...]
    group_size: int

    def forest(self) -> tuple[Forest, Targets]:
        """The forest, and its sampled tokens as targets, answer after answer."""
        forest = build_forest(self.sequences)
        before = [forest.sample_slots(i)[n - 1 : -1] for i, n in enumerate(self.prompts)]
        ids = np.concatenate([sequence[n:] for sequence, n in zip(self.sequences, self.prompts, strict=True)])
        ones = np.ones(len(ids))
        return forest, Targets(np.concatenate(before), ids, ones, ones)

    def advantages(self) -> Floats:
        """Leave-one-out advantage of each sampled token."""
        grouped = np.array(self.rewards).reshape(-1, self.group_size)
        others = (grouped.sum(1, keepdims=True) - grouped) / (self.group_size - 1)
        lengths = [len(sequence) - n for sequence, n in zip(self.sequences, self.prompts, strict=True)]
        return np.repeat((grouped - others).reshape(-1), lengths)


class Student:
    """The policy, its tokenizer and its tasks."""

    def __init__(self, folder: Path, learning_rate: float) -> None:
        self.model: Any = load_model(folder)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.end: int = self._tokenizer.eos_token_id
        self._environment = ReasoningEnvironment()
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )

    def prompt(self, index: int) -> list[int]:
        """Token ids of a task's prompt."""
        messages = self._environment.messages(self._environment.task("train", index))
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def sample(self, tasks: Sequence[int], group_size: int) -> Sampled:
        """`group_size` answers to each task, drawn at temperature 1, judged by the environment."""
        prompts = [ids for ids in map(self.prompt, tasks) for _ in range(group_size)]
        answers = self._complete(prompts)
        rewards = [
            self._judge(task, answer) for task, answer in zip(np.repeat(tasks, group_size), answers, strict=True)
        ]
        sequences = tuple(np.array([*p, *a], np.int64) for p, a in zip(prompts, answers, strict=True))
        return Sampled(sequences, tuple(len(p) for p in prompts), tuple(rewards), group_size)

    def learn(self, batch: Sampled, advantages: Floats, draft: DraftTraining) -> float:
        """One optimiser step on the batch, the head's beside it; the gradient's norm before clipping."""
        forest, targets = batch.forest()
        weights_N = torch.from_numpy(advantages / len(advantages)).float()

        def objective(scores: Scores, targets_N: Ints) -> Tensor:
            # On policy every importance ratio is 1: CISPO is then the plain policy gradient.
            return -(weights_N[torch.from_numpy(targets_N)] * scores.logprobs_N).sum()

        beside = partial(draft.beside, slots=targets.predecessors_N)
        self.model.zero_grad(set_to_none=True)
        gradient_pass(self.model, forest, targets, objective, PassOptions(BUDGET_TOKENS, local=True, beside=beside))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimiser.step()
        draft.apply()
        return float(norm)

    def _judge(self, task: int, answer: Sequence[int]) -> float:
        text = self._tokenizer.decode(answer, skip_special_tokens=True)
        return self._environment.verify(self._environment.task("train", int(task)), text, []).score

    @torch.no_grad()
    def _complete(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        width = max(map(len, prompts))
        ids_BT = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
        mask_BT = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        end = self.end
        self.model.eval()
        drawn_BT = self.model.generate(
            ids_BT, attention_mask=mask_BT, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=MAX_TOKENS, pad_token_id=0, eos_token_id=end,
        )[:, width:].tolist()  # fmt: skip
        self.model.train()
        return [row[: row.index(end) + 1] if end in row else row for row in drawn_BT]


def task_numbers(seed: int, count: int) -> list[int]:
    """Which tasks a batch asks."""
    return random.Random(seed).sample(range(100_000), count)
