"""Loss and gradient of a batch against an independent float64 computation, token by token, branch by branch."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_bench import RUN, context, sampled
from transformers import Qwen3ForCausalLM

from services.contract.rewards import RewardWeights
from services.contract.trajectory import Trajectory
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.episodes import EpisodeInput, plan_batch
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.losses import Cispo, Gspo, Interval
from services.trainer.domain.rows import RowRules, batch_rows
from services.trainer.ports import Optimiser, Recipe

CAP = 1.2
OPTIMISER = Optimiser(1e-3, 0.0, 0.9, 0.95, 1.0, 0)


def forked(episode_id: str, shift: int) -> Trajectory:
    """A prompt and a first turn that two branches share; the second branch samples at temperature 0.7."""

    def turn(ids: tuple[int, ...]) -> list[float]:
        return [-4.0 - 0.1 * (i % 5) for i in ids]

    prompt = tuple((shift + i) % 46 for i in range(5))
    first, second, third = (3 + shift, 4, 5), (9, 8 + shift, 7, 6), (11, 12)
    nodes = (
        context(0, -1, prompt),
        sampled(1, 0, 0, first, turn(first)),
        context(2, 1, (20, 21)),
        sampled(3, 2, 1, second, turn(second)),
        context(4, 1, (30,)),
        replace(sampled(5, 4, 2, third, turn(third)), temperature=0.7),
    )
    return Trajectory(episode_id, RUN, nodes)


def episode(trajectory: Trajectory, performance: float) -> EpisodeInput:
    return EpisodeInput(trajectory.episode_id, "tool", trajectory, performance, (), False, 1.0, 0, True, "")


def reference(folder: Path, groups: list[list[EpisodeInput]]) -> tuple[float, dict[str, torch.Tensor]]:
    """Performance only, gamma 1: A = own performance - the others' mean. A node's prompt is its ancestors' ids."""
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float64)
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in groups:
        for i, mine in enumerate(group):
            others = [other.performance for j, other in enumerate(group) if j != i]
            advantage = mine.performance - sum(others) / len(others)
            nodes = {node.node_id: node for node in mine.trajectory.nodes}
            for node in nodes.values():
                if not node.sampled:
                    continue
                prompt: list[int] = []
                parent = node.parent_id
                while parent >= 0:
                    prompt = [*nodes[parent].token_ids, *prompt]
                    parent = nodes[parent].parent_id
                for position, token in enumerate(node.token_ids):
                    before = torch.tensor([[*prompt, *node.token_ids[:position]]])
                    logits = model(input_ids=before).logits[0, -1] / node.temperature
                    logprob = logits[token] - torch.logsumexp(logits, -1)
                    ratio = math.exp(float(logprob.detach()) - float(torch.tensor(node.logprobs[position]).double()))
                    total = total - min(ratio, CAP) * advantage * logprob
                    tokens += 1
    loss = total / tokens
    loss.backward()
    return float(loss.detach()), {name: parameter.grad for name, parameter in model.named_parameters()}


def gspo_reference(
    folder: Path, groups: list[list[EpisodeInput]], interval: Interval
) -> tuple[float, dict[str, torch.Tensor]]:
    """Equations 5 to 7 as they stand, a sequence a branch: turns 0 and 1, then turn 2. A over the group's deviation.

    Mean over the tokens of each group, then over the groups.
    """
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for group in groups:
        rewards = [mine.performance for mine in group]
        for i, mine in enumerate(group):
            others = [reward for j, reward in enumerate(rewards) if j != i]
            advantage = (rewards[i] - sum(others) / len(others)) / (statistics.stdev(rewards) + 1e-4)
            prompt, first, tool, second, rewrite, third = mine.trajectory.nodes
            for path, trained in (
                ((prompt, first, tool, second), (first, second)),
                ((prompt, first, rewrite, third), (third,)),
            ):
                ids = [token for node in path for token in node.token_ids]
                logits = model(input_ids=torch.tensor([ids])).logits[0]
                differences: list[torch.Tensor] = []
                at = 0
                for node in path:
                    for offset, token in enumerate(node.token_ids if node in trained else ()):
                        scaled = logits[at + offset - 1] / node.temperature
                        differences.append(torch.log_softmax(scaled, -1)[token] - node.logprobs[offset])
                    at += len(node.token_ids)
                ratio = torch.exp(torch.stack(differences).mean())
                clipped = ratio.clamp(1 - interval.low, 1 + interval.high)
                tokens = len(groups) * 9 * len(group)
                total = total - len(differences) * torch.minimum(ratio * advantage, clipped * advantage) / tokens
    total.backward()
    return float(total.detach()), {name: parameter.grad for name, parameter in model.named_parameters()}


def batch() -> list[list[EpisodeInput]]:
    return [
        [episode(forked("a", 0), 1.0), episode(forked("b", 1), 0.0), episode(forked("c", 2), 0.0)],
        [episode(forked("d", 3), 0.25), episode(forked("e", 4), 1.0)],
    ]


def accumulate(learner: TorchLearner, micro_batch_tokens: int) -> BatchStats:
    plans = plan_batch(batch(), RewardWeights(0.0, 0.0, 1.0), turn_aligned=False)
    rows = batch_rows(plans, RowRules(0)).rows
    return learner.accumulate(rows, Recipe(Cispo(CAP), 0, micro_batch_tokens))


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 100_000])
def test_gradient_equals_an_independent_float64_one(model_folder: Path, micro_batch_tokens: int):
    loss, gradients = reference(model_folder, batch())
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    stats = accumulate(learner, micro_batch_tokens)
    assert stats.tokens == 5 * 9
    assert 0 < stats.clip_share < 1
    assert stats.loss == pytest.approx(loss, rel=1e-5)
    assert distance(learner, gradients) < 1e-5


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 100_000])
def test_a_loss_of_whole_sequences_equals_an_independent_float64_one(model_folder: Path, micro_batch_tokens: int):
    interval = Interval(0.3, 0.1)
    loss, gradients = gspo_reference(model_folder, batch(), interval)
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    plans = plan_batch(batch(), RewardWeights(0.0, 0.0, 1.0), turn_aligned=False, divided=True)
    rows = batch_rows(plans, RowRules(0, per_group=True)).rows
    stats = learner.accumulate(rows, Recipe(Gspo(interval), 0, micro_batch_tokens))
    assert 0 < stats.clip_share < 1
    assert stats.loss == pytest.approx(loss, rel=1e-5)
    assert distance(learner, gradients) < 1e-5


def distance(learner: TorchLearner, gradients: dict[str, torch.Tensor]) -> float:
    """Of the learner's gradient from a reference, by norm."""
    apart = whole = 0.0
    for name, parameter in learner._model.named_parameters():
        apart += float((parameter.grad.double() - gradients[name]).pow(2).sum())
        whole += float(gradients[name].pow(2).sum())
    assert whole > 0
    return math.sqrt(apart / whole)


def test_norm_is_told_before_clipping_and_the_step_is_adams(model_folder: Path):
    _, gradients = reference(model_folder, batch())
    norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients.values()))
    learner = TorchLearner(1)
    learner.start(model_folder, replace(OPTIMISER, max_grad_norm=norm / 2))
    before = {name: p.detach().clone() for name, p in learner._model.named_parameters()}
    accumulate(learner, 100_000)
    assert learner.apply() == pytest.approx(norm, rel=1e-5)
    # Adam's first step is lr * g / (|g| + eps), whatever the scale of g.
    for name, parameter in learner._model.named_parameters():
        clipped = gradients[name] / 2
        expected = before[name].double() - 1e-3 * clipped / (clipped.abs() + 1e-8)
        large = gradients[name].abs() > 1e-4
        assert torch.allclose(parameter.detach().double()[large], expected[large], atol=2e-6)
    assert all(p.grad is None for p in learner._model.parameters())


def test_noise_of_halves_is_between_agreement_and_opposition(model_folder: Path):
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    twins = [[episode(forked("a", 0), 1.0), episode(forked("b", 0), 0.0)]]
    plans = plan_batch(twins, RewardWeights(0.0, 0.0, 1.0), turn_aligned=False)
    assert [plan.mean_advantage for plan in plans] == [1.0, -1.0]
    same = [replace(plan, turn_advantages=(1.0, 1.0, 1.0)) for plan in plans]
    rows = batch_rows(same, RowRules(0)).rows
    stats = learner.accumulate(rows, Recipe(Cispo(CAP), 0, 1000))
    assert stats.grad_noise == pytest.approx(0.0, abs=1e-9)
