"""One rank of loadtests.distributed, as torchrun starts it: trains a few steps and writes down what it saw.

It refuses to compare: the parent does.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.losses import Cispo
from services.trainer.domain.packing import halves
from services.trainer.domain.rows import Row
from services.trainer.ports import Optimiser, Ranks, Recipe
from services.trainer.ranks.alone import Alone
from services.trainer.ranks.group import Group
from services.trainer.ranks.place import place_of
from services.trainer.ranks.sharding import local
from services.trainer.ranks.shares import shares

OPTIMISER = Optimiser(1e-4, 0.0, 0.9, 0.95, 1.0, 0)
RECIPE = Recipe(Cispo(5.0), 0, 4096)
STEPS = 3
GROUPS, MEMBERS = 8, 4
PROMPT_TOKENS, ANSWER_TOKENS = 96, 64
TIMEOUT_S = 600.0


def made_rows(vocabulary: int) -> list[Row]:
    """Groups whose members share a prompt; the same on every rank."""
    draw = np.random.default_rng(0)
    weight = 1.0 / (GROUPS * MEMBERS * ANSWER_TOKENS)
    return [
        _row(f"{group}", f"{group}.{member}", np.concatenate([prompt, answer]), weight)
        for group in range(GROUPS)
        for prompt in [draw.integers(0, vocabulary, PROMPT_TOKENS)]
        for member in range(MEMBERS)
        for answer in [draw.integers(0, vocabulary, ANSWER_TOKENS)]
    ]


def _row(group: str, episode: str, ids_T: Any, weight: float) -> Row:
    trained_T = np.arange(len(ids_T)) >= PROMPT_TOKENS
    ones_T = np.ones(len(ids_T), np.float64)
    sign = 1.0 if int(episode.rpartition(".")[2]) % 2 else -1.0
    return Row(
        episode_id=episode,
        group_id=group,
        domain="made",
        token_ids_T=ids_T.astype(np.int64),
        trained_T=trained_T,
        advantages_T=np.full(len(ids_T), sign, np.float64),
        weights_T=(trained_T * weight).astype(np.float64),
        logprobs_T=np.full(len(ids_T), -8.0, np.float64),
        temperatures_T=ones_T,
        top_ps_T=ones_T,
        policy_steps_T=np.zeros(len(ids_T), np.int64),
        turns_T=np.zeros(len(ids_T), np.int64),
    )


def moments(learner: Any) -> Iterator[tuple[str, Tensor]]:
    """The optimiser's tensors under their parameters' names."""
    for name, parameter in learner._model.named_parameters():
        for key, value in learner._optimiser.state[parameter].items():
            yield f"{name}.{key}", value


def held_bytes(tensors: Iterator[Tensor]) -> int:
    """Bytes that this rank holds of them."""
    return sum(local(tensor).numel() * tensor.element_size() for tensor in tensors)


def work(ranks: Ranks, model: Path, out: Path, checkpoint: Path | None) -> dict[str, Any]:
    """Train, or load and write down what was loaded; the answer is one rank's line."""
    learner: Any = TorchLearner(1, ranks)
    if checkpoint is not None:
        learner.restore(checkpoint, OPTIMISER)
        state = ranks.full(learner._model.named_parameters()) | ranks.full(moments(learner))
        if ranks.rank == 0:
            torch.save(state, out / "loaded.pt")
        return {}
    learner.start(model, OPTIMISER)
    rows = made_rows(learner._model.config.vocab_size)
    parts = [shares(half, ranks.size)[ranks.rank] for half in halves(rows)]
    seconds: list[float] = []
    for step in range(STEPS):
        started_s = time.perf_counter()
        loss = learner.accumulate_halves(parts, RECIPE).loss
        if step == 0:
            first = (loss, ranks.full((name, p.grad) for name, p in learner._model.named_parameters()))
        learner.apply()
        seconds.append(time.perf_counter() - started_s)
    learner.save(out / "checkpoint")
    state = ranks.full(learner._model.named_parameters()) | ranks.full(moments(learner))
    if ranks.rank == 0:
        torch.save({"loss": first[0], "gradient": first[1], "state": state}, out / "trained.pt")
    return {
        "parameter_bytes": held_bytes(p.detach() for p in learner._model.parameters()),
        "optimiser_bytes": held_bytes(value for _, value in moments(learner)),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "tokens": sum(row.length for part in parts for row in part),
        "step_s": min(seconds),
    }


def main() -> None:
    """Arguments: model folder, out folder, checkpoint to load or nothing."""
    model, out, *checkpoint = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    place = place_of(os.environ, 1)
    group = Group(place)
    if place.size > 1:
        group.connect(TIMEOUT_S)
    line = work(group if place.size > 1 else Alone(), model, out, checkpoint[0] if checkpoint else None)
    (out / f"rank-{place.rank}.json").write_text(json.dumps(line))
    if place.size > 1:
        group.leave()


if __name__ == "__main__":
    main()
