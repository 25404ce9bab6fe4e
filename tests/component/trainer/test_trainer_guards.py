"""What a step refuses and warns of, and what it tells by domain, on a whole trainer around a tiny model."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forgerl.common.v1 import run_pb2
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted, StepFailed
from forgerl.trainer.v1.report_pb2 import StepReport
from structlog.testing import capture_logs
from torch import Tensor
from trainer_bench import RUN, Bench, context, reference_logprobs, sampled, two_turns
from transformers import Qwen3ForCausalLM

from services.contract.rewards import RewardWeights
from services.contract.trajectory import Span, Trajectory
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.episodes import EpisodeInput, plan_batch
from services.trainer.domain.losses import Cispo
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import RowRules, batch_rows
from services.trainer.ports import Optimiser, Recipe

OPTIMISER = Optimiser(1e-3, 0.0, 0.9, 0.95, 1.0, 0)
MARKED = 46
"""A token that the bench's own episodes never hold."""


def episode(name: str, performance: float, ids: tuple[int, ...], model: Qwen3ForCausalLM) -> EpisodeInput:
    """A prompt of four tokens and one turn, in the policy's own log-probabilities."""
    logprobs = [0.0, *reference_logprobs(model, ids)]
    nodes = (context(0, -1, ids[:4]), sampled(1, 0, 0, ids[4:], logprobs[4:]))
    return EpisodeInput(name, "tool", Trajectory(name, RUN, nodes), performance, (), False, 1.0, 0, True, "")


def poison_gradient_of(model: Any, token: int) -> None:
    """Nothing but the gradient of one token's embedding is spoilt: forward pass and loss stay finite."""

    def watch(_module: Any, given: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(
                lambda slope: slope.masked_fill((given[0] == token)[..., None] & (slope != 0), math.nan)
            )

    model.get_input_embeddings().register_forward_hook(watch)


def refusal_of(learner: TorchLearner, episodes: list[EpisodeInput]) -> str:
    plans = plan_batch([episodes], RewardWeights(0.0, 0.0, 1.0), turn_aligned=False)
    with pytest.raises(StepRefused) as refused:
        learner.accumulate(batch_rows(plans, RowRules(0)).rows, Recipe(Cispo(5.0), 0, 64))
    return refused.value.detail


def test_a_poisoned_gradient_names_the_token_and_leaves_the_weights(model_folder: Path):
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    policy = Qwen3ForCausalLM.from_pretrained(model_folder).eval()
    before = {name: p.detach().clone() for name, p in learner._model.named_parameters()}
    poison_gradient_of(learner._model, MARKED)
    tokens = {name: (1, 2, 3, 4, 5 + i, 6, 7, 8, 9) for i, name in enumerate("abcd")}
    tokens["c"] = (1, 2, 3, 4, 7, 6, MARKED, 8, 9)
    episodes = [episode(name, float(name in "ac"), ids, policy) for name, ids in tokens.items()]
    # the marked token is at place 6: the first one that it helped to predict is at place 7
    assert refusal_of(learner, episodes) == "episode c: turn 0: token 7 of its branch: gradient is not finite"
    assert all(torch.equal(p, before[name]) for name, p in learner._model.named_parameters())


def test_a_poisoned_parameter_gradient_is_refused(model_folder: Path):
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    policy = Qwen3ForCausalLM.from_pretrained(model_folder).eval()
    before = {name: p.detach().clone() for name, p in learner._model.named_parameters()}
    learner._model.model.layers[0].mlp.up_proj.weight.register_hook(lambda slope: slope * math.inf)
    episodes = [episode(n, p, (1, 2, 3, 4, 5, 6), policy) for n, p in (("a", 1.0), ("b", 0.0))]
    assert refusal_of(learner, episodes) == "episode a: turn 0: token 4 of its branch: gradient is not finite"
    assert all(torch.equal(p, before[name]) for name, p in learner._model.named_parameters())


async def test_a_poisoned_token_fails_the_step_by_name_and_publishes_nothing(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    first = (await bench.published())[0]
    model = bench.policy_model(first)
    good, bad = two_turns("good", 1, model), two_turns("bad", 2, model)
    turn = bad.nodes[3]
    broken = replace(turn, logprobs=(turn.logprobs[0], math.inf, *turn.logprobs[2:]))
    bad = replace(bad, nodes=(*bad.nodes[:3], broken))
    failed = (await bench.feed(await bench.batch(1, [[(good, 1.0, True), (bad, 0.0, True)]])))[-1]
    assert isinstance(failed, StepFailed)
    assert failed.detail == "episode bad: turn 1: token 10 of its branch: the engine's log-probability is not finite"
    assert [m for m in await bench.published() if isinstance(m, PolicyPublished)] == [first]


async def test_three_domains_in_one_batch_are_told_apart_everywhere(bench: Bench, model_folder: Path):
    await bench.create(model_folder)
    model = bench.policy_model((await bench.published())[0])
    names = ("reasoning", "qa", "tool")
    groups = [
        [(two_turns(f"{name}{i}", 10 * g + i, model), float(i == 0), True) for i in (0, 1)]
        for g, name in enumerate(names)
    ]
    completed = (await bench.feed(await bench.batch(1, groups, names)))[1]
    assert isinstance(completed, StepCompleted)
    metrics = completed.metrics
    kinds = ("reward_mean", "success", "tokens", "loss", "entropy", "ratio_mean", "ratio_max", "clip_share")
    for name, group in zip(names, groups, strict=True):
        tokens = sum(len(n.token_ids) for t, _, _ in group for n in t.nodes if n.sampled)
        assert metrics[f"domain/{name}/tokens"] == tokens
        assert metrics[f"domain/{name}/ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        assert metrics[f"domain/{name}/mismatch_kl"] == pytest.approx(0.0, abs=1e-6)
        assert 0 < metrics[f"domain/{name}/entropy"] < math.log(48)
    # the batch's loss is the mean of the domains' by their tokens: none has a weight of its own
    total = sum(metrics[f"domain/{n}/loss"] * metrics[f"domain/{n}/tokens"] for n in names)
    assert metrics["loss"] == pytest.approx(total / metrics["tokens"])
    with (bench.root / "runs" / RUN / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert {f"domain/{name}/{kind}" for name in names for kind in kinds} <= set(row)
    assert float(row["ratio_p50"]) == pytest.approx(1.0, abs=0.01)
    assert float(row["parameter_grad_norm_p99"]) > 0


async def test_histograms_reach_tensorboard_and_the_report(bench: Bench, model_folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    await bench.create(model_folder)
    model = bench.policy_model((await bench.published())[0])
    group = [(two_turns(name, seed, model), float(seed), True) for seed, name in enumerate("ab")]
    completed = (await bench.feed(await bench.batch(1, [group])))[1]
    assert isinstance(completed, StepCompleted)
    events = EventAccumulator(str(bench.root / "runs" / RUN / "tensorboard"))
    events.Reload()
    (drawn,) = events.Histograms("histogram/ratio")
    assert (drawn.step, drawn.histogram_value.num) == (1, completed.trained_tokens)
    (norms,) = events.Histograms("histogram/parameter_grad_norm")
    assert norms.histogram_value.num == len(list(model.parameters()))
    assert events.Scalars("domain/tool/tokens")[0].value == completed.trained_tokens
    report = StepReport.FromString(await bench.blobs.get(completed.report))
    kept = {histogram.name: histogram for histogram in report.histograms}
    assert set(kept) == {"ratio", "parameter_grad_norm"}
    assert sum(kept["ratio"].counts) == completed.trained_tokens
    assert len(kept["ratio"].counts) == len(kept["ratio"].edges) + 1
    # the norm of the whole gradient lies between the largest parameter's and the root of their number times that
    largest = kept["parameter_grad_norm"].high
    assert largest <= completed.metrics["grad_norm"] <= largest * math.sqrt(len(list(model.parameters())))


async def test_mismatch_warns_before_it_refuses(bench: Bench, model_folder: Path):
    await bench.create(model_folder, mismatch_kl_alarm=0.001, mismatch_limit=0.1)
    model = bench.policy_model((await bench.published())[0])
    off: list[tuple[Trajectory, float, bool]] = []
    for seed, name in enumerate(("a", "b")):
        trajectory = two_turns(name, seed, model)
        nodes = tuple(replace(n, logprobs=tuple(p - 0.05 for p in n.logprobs)) for n in trajectory.nodes)
        off.append((replace(trajectory, nodes=nodes), float(seed), True))
    with capture_logs() as logs:
        completed = (await bench.feed(await bench.batch(1, [off])))[1]
    assert isinstance(completed, StepCompleted)
    # k3 of d = 0.05 everywhere: e^0.05 - 1.05 = 0.001271
    assert completed.metrics["mismatch_kl"] == pytest.approx(math.exp(0.05) - 1.05, rel=1e-3)
    assert completed.metrics["mismatch_kl_fresh"] == pytest.approx(math.exp(0.05) - 1.05, rel=1e-3)
    assert completed.metrics["mismatch_alarm"] == 1.0
    (warning,) = [entry for entry in logs if entry["event"] == "mismatch.alarm"]
    assert warning["log_level"] == "warning"
    assert warning["detail"].startswith("mismatch KL is 0.00127 over ")


async def test_no_alarm_where_engine_and_trainer_agree(bench: Bench, model_folder: Path):
    with capture_logs() as logs:
        await bench.create(model_folder)
        model = bench.policy_model((await bench.published())[0])
        group = [(two_turns(name, seed, model), float(seed), True) for seed, name in enumerate("ab")]
        completed = (await bench.feed(await bench.batch(1, [group])))[1]
    assert isinstance(completed, StepCompleted)
    assert completed.metrics["mismatch_alarm"] == 0.0
    assert not [entry for entry in logs if entry["event"] == "mismatch.alarm"]
    # the interval in force is told when the run is taken
    (taken,) = [entry for entry in logs if entry["event"] == "run.taken"]
    assert taken["loss"] == "cispo: importance ratio of a token clipped to [0, 5], no gradient through it"


async def test_old_tokens_are_masked_and_the_report_says_so(bench: Bench, model_folder: Path):
    await bench.create(model_folder, max_token_staleness_steps=1)

    async def newest_model() -> Qwen3ForCausalLM:
        return bench.policy_model([m for m in await bench.published() if isinstance(m, PolicyPublished)][-1])

    for number in (1, 2):
        model = await newest_model()
        group = [(two_turns(f"{n}{number}", s, model, number - 1), float(s), True) for s, n in enumerate("ab")]
        await bench.feed(await bench.batch(number, [group]))
    # trained from step 2: turns of step 0 are two steps old, those of step 2 are fresh
    newest = await newest_model()
    mixed, fresh = two_turns("mixed", 5, newest, 2), two_turns("fresh", 6, newest, 2)
    old = replace(mixed.nodes[1], spans=(Span(0, 3, 0, "digest"),))
    mixed = replace(mixed, nodes=(mixed.nodes[0], old, *mixed.nodes[2:]))
    completed = (await bench.feed(await bench.batch(3, [[(mixed, 1.0, True), (fresh, 0.0, True)]])))[-2]
    assert isinstance(completed, StepCompleted)
    assert completed.metrics["masked_tokens"] == 3.0
    report = StepReport.FromString(await bench.blobs.get(completed.report))
    assert [(e.episode_id, e.masked_tokens) for e in report.episodes] == [("mixed", 3), ("fresh", 0)]
    counts = {t.episode_id: sum(len(n.token_ids) for n in t.nodes if n.sampled) for t in (mixed, fresh)}
    assert [e.trained_tokens for e in report.episodes] == [counts["mixed"] - 3, counts["fresh"]]
    assert completed.trained_tokens == counts["mixed"] - 3 + counts["fresh"]
    assert sum(e.loss_weight for e in report.episodes) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["GRPO", "GSPO", "PPO_CLIP"])
async def test_every_loss_raises_the_probability_of_what_was_right(bench: Bench, model_folder: Path, kind: str):
    loss = getattr(run_pb2, f"LOSS_KIND_{kind}")
    await bench.create(model_folder, loss=loss, learning_rate=1e-3, truncated_importance_cap=2.0)
    before = bench.policy_model((await bench.published())[0])
    good, bad = two_turns("good", 1, before), two_turns("bad", 2, before)
    messages = await bench.feed(await bench.batch(1, [[(good, 1.0, True), (bad, 0.0, True)]]))
    assert isinstance(messages[-1], PolicyPublished)
    after = bench.policy_model(messages[-1])
    assert sum(two_turns("good", 1, after).nodes[3].logprobs) > sum(good.nodes[3].logprobs)
    assert sum(two_turns("bad", 2, after).nodes[3].logprobs) < sum(bad.nodes[3].logprobs)
