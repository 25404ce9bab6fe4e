"""Merged or apart is decided by one pace a run: measured when it began, recorded with it, in force after a restart."""

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted
from test_trainer_gradient import CAP, OPTIMISER
from trainer_bench import RUN, Bench, context, reference_logprobs, sampled
from transformers import Qwen3ForCausalLM

from services.contract.trajectory import Trajectory
from services.kernel.envelope import Event
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.losses import Cispo
from services.trainer.domain.merging import FREE_CALLS, Pace
from services.trainer.ports import Learner, Recipe

DEAR_CALLS = Pace(0.0, 1.0)


@dataclass
class Machine:
    """Its speed, and how often it was asked for it."""

    pace: Pace
    measured: int = 0
    threads: Executor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def learner(self) -> tuple[Learner, Executor]:
        return Timed(self), self.threads


class Timed(TorchLearner):
    """A learner on a machine of known speed."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(1)
        self._machine = machine

    def measure_pace(self, recipe: Recipe) -> Pace:
        self._machine.measured += 1
        return self._machine.pace


def answer(episode_id: str, first: int, model: Qwen3ForCausalLM, step: int) -> Trajectory:
    """A prompt that all have, and five sampled tokens that differ from the first on."""
    ids = [1, 2, 3, 4, 5, first, 7, 8, 9, 10]
    logprobs = [0.0, *reference_logprobs(model, ids)]
    nodes = (context(0, -1, ids[:5]), sampled(1, 0, 0, ids[5:], logprobs[5:], step))
    return Trajectory(episode_id, RUN, nodes)


async def sharing_batch(bench: Bench, number: int) -> Event:
    """Two groups of two."""
    policies = [m for m in await bench.published() if isinstance(m, PolicyPublished)]
    model, step = bench.policy_model(policies[-1]), policies[-1].step
    groups = [
        [(answer(f"e{number}.{g}.{m}", 20 + 2 * g + m, model, step), float(m == g), True) for m in (0, 1)]
        for g in (0, 1)
    ]
    return await bench.batch(number, groups)


@pytest.mark.parametrize(("pace", "other"), [(FREE_CALLS, DEAR_CALLS), (DEAR_CALLS, FREE_CALLS)])
async def test_a_restart_on_a_machine_of_another_pace_goes_on_bit_by_bit(
    tmp_path: Path, model_folder: Path, pace: Pace, other: Pace
):
    ends: list[list[str]] = []
    for name, restart_after in (("whole", 0), ("restarted", 1)):
        (tmp_path / name).mkdir()
        machine = Machine(pace)
        bench = Bench(tmp_path / name, make_learner=machine.learner)
        await bench.create(model_folder, learning_rate=1e-2)
        for number in (1, 2, 3):
            await bench.feed(await sharing_batch(bench, number))
            if number == restart_after:
                machine.pace = other
                bench.restart()
        messages = await bench.published()
        ends.append([m.digest for m in messages if isinstance(m, PolicyPublished)])
        metrics = [m.metrics for m in messages if isinstance(m, StepCompleted)]
        assert [m["tree_tokens"] < m["branch_tokens"] for m in metrics] == [pace == FREE_CALLS] * 3
        assert machine.measured == 1
        assert (await bench.runs.load(RUN)).pace == pace
    assert len(set(ends[0])) == 4
    assert ends[0] == ends[1]


def test_measuring_leaves_no_trace(model_folder: Path):
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    before = torch.get_rng_state()
    weights = [p.detach().clone() for p in learner._model.parameters()]
    pace = learner.measure_pace(Recipe(Cispo(CAP), 0, 40))
    assert 1e-14 < pace.operation_s < 1e-3
    assert 1e-8 < pace.call_s < 1.0
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in learner._model.parameters())
    assert all(torch.equal(p, w) for p, w in zip(learner._model.parameters(), weights, strict=True))
