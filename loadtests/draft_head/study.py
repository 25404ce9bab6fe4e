"""Frozen head against co-trained head while the policy moves: exact figures at many steps, a real engine at a few."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.draft_head.engine import Order, measure
from loadtests.draft_head.measure import Guesses, Moved, guesses, hidden, moved
from loadtests.draft_head.moves import AtRest, ByReward, ByTaste, Move
from loadtests.draft_head.policy import MAX_TOKENS, Sampled, Student, task_numbers
from services.trainer.adapters.draft_training import DraftSettings, DraftTraining
from services.trainer.adapters.model_folder import read_companions, save_model, weights_digest
from services.trainer.ranks.alone import Alone

GROUP_SIZE = 8
JUDGED_TASKS = 64
JUDGED_SEED, WARM_SEED = 1_000_003, 2_000_003
BAND = (0.2, 0.7)


@dataclass(frozen=True, slots=True)
class Plan:
    """One study. `move`: "drift", "reward" or "rest"; `to_kl`: where the drift ends, in nats; rates are AdamW's."""

    model: Path
    move: str
    steps: int
    every_steps: int
    learning_rate: float
    to_kl: float
    top_k: int
    head_rate: float
    warm_batches: int
    warm_rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one step."""

    step: int
    reward: float
    moved: Moved
    frozen: Guesses
    cotrained: Guesses


class Study:
    """Warms a head on the resting policy, then lets the policy go with one head following and one left behind."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        self.plan = plan
        self.folders: dict[int, tuple[str, str]] = {}
        self._scratch = scratch
        self._student = Student(plan.model, plan.learning_rate)
        self._start: Any = copy.deepcopy(self._student.model)
        self._follower = self._head()
        self._left = self._head()
        self._companions = read_companions(plan.model)

    def warm(self) -> None:
        """Train the head while the policy rests."""
        count = GROUP_SIZE * 4
        batches = [
            self._student.sample(task_numbers(WARM_SEED + number, count), GROUP_SIZE)
            for number in range(self.plan.warm_batches)
        ]
        for _ in range(self.plan.warm_rounds):
            for batch in batches:
                forest, targets = batch.forest()
                hidden_SE = hidden(self._student.model, forest)
                self._follower.beside(hidden_SE, forest, targets.predecessors_N).backward()
                self._follower.apply()
        self._left.head.load_state_dict(self._follower.head.state_dict())

    def run(self, engine_steps: list[int], tell: Callable[[Row], None]) -> list[Row]:
        """All steps, told of as they come; policies of `engine_steps` are kept as folders, one with each head."""
        move = self._move()
        rows: list[Row] = []
        for step in range(self.plan.steps + 1):
            if step % self.plan.every_steps == 0:
                rows.append(self._row(step))
                tell(rows[-1])
            if step in engine_steps:
                self._keep(step)
            if step < self.plan.steps:
                tasks = task_numbers(self.plan.seed + step, 2 * GROUP_SIZE)
                batch = self._student.sample(tasks, GROUP_SIZE)
                self._student.learn(batch, move.advantages(self._student.model, batch), self._follower)
        return rows

    def in_engine(self, tokens: int, repeats: int) -> list[dict[str, Any]]:
        """Tokens a verification in a real engine, of every kept policy with either head."""
        if not self.folders:
            return []
        prompts = [self._student.prompt(task) for task in self._tasks() for _ in range(repeats)]
        kept = [
            (step, kind, pair[at])
            for step, pair in self.folders.items()
            for at, kind in enumerate(("frozen", "cotrained"))
        ]
        order = Order([folder for _, _, folder in kept], tokens, prompts, MAX_TOKENS, self._student.end)
        return [
            {"step": step, "head": kind, "guesses": tokens, **figures}
            for (step, kind, _), figures in zip(kept, measure(order), strict=True)
        ]

    def _move(self) -> Move:
        if self.plan.move != "drift":
            return ByReward() if self.plan.move == "reward" else AtRest()
        return ByTaste(self._start, self.plan.to_kl / self.plan.steps, self.plan.seed)

    def _head(self) -> DraftTraining:
        settings = DraftSettings(self.plan.top_k, self.plan.head_rate, 1.0)
        return DraftTraining(self._student.model, settings, Alone())

    def _tasks(self) -> list[int]:
        return task_numbers(JUDGED_SEED, JUDGED_TASKS)

    def _judged(self) -> Sampled:
        """Fresh answers to the tasks that every figure is taken on; never trained on."""
        return self._student.sample(self._tasks(), GROUP_SIZE)

    def _row(self, step: int) -> Row:
        batch, model = self._judged(), self._student.model
        left, follower = (guesses(model, training.head, batch) for training in (self._left, self._follower))
        reward = sum(batch.rewards) / len(batch.rewards)
        return Row(step, reward, moved(model, self._start, batch), left, follower)

    def _keep(self, step: int) -> None:
        pair: list[str] = []
        for kind, training in (("frozen", self._left), ("cotrained", self._follower)):
            folder = self._scratch / f"step-{step:04d}-{kind}"
            save_model(self._student.model, dict(self._student.model.state_dict()), self._companions, folder)
            training.publish(folder, weights_digest(folder))
            pair.append(str(folder))
        self.folders[step] = (pair[0], pair[1])


def kept_share(rows: list[Row], kind: str) -> float | None:
    """The least tokens a verification within the band of KL, as a share of the start's; None where none is in it."""
    first: Guesses = getattr(rows[0], kind)
    within = [row for row in rows if BAND[0] <= row.moved.kl_from_start <= BAND[1]]
    figures = [getattr(row, kind).tokens_per_verify / first.tokens_per_verify for row in within]
    return min(figures) if figures else None
