"""Low-rank adapters: only they are trained, engines get merged weights, and a restart goes on exactly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted
from peft import PeftModel
from test_trainer_gradient import CAP, OPTIMISER, batch
from test_trainer_steps import files_under, take_batch
from trainer_bench import Bench, make_model
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from services.contract.rewards import RewardWeights
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.episodes import plan_batch
from services.trainer.domain.losses import Cispo
from services.trainer.domain.rows import Row, RowRules, batch_rows
from services.trainer.ports import Recipe

LOW_RANK = replace(OPTIMISER, learning_rate=1e-2, lora_rank=4, lora_alpha=8.0, base="models/tiny")
RECIPE = Recipe(Cispo(CAP), 0, 40)
IDS = torch.tensor([[5, 9, 2, 30, 17, 4, 11]])


def rows() -> list[Row]:
    """Everything that was sampled is to become likelier, so that the loss must fall."""
    plans = plan_batch(batch(), RewardWeights(0.0, 0.0, 1.0), turn_aligned=False)
    return [replace(row, advantages_T=np.ones(row.length)) for row in batch_rows(plans, RowRules(0)).rows]


def trained(folder: Path, steps: int) -> tuple[TorchLearner, list[float]]:
    learner = TorchLearner(1)
    learner.start(folder, LOW_RANK)
    losses: list[float] = []
    for _ in range(steps):
        losses.append(learner.accumulate(rows(), RECIPE).loss)
        learner.apply()
    return learner, losses


def logits(model: torch.nn.Module) -> torch.Tensor:
    """In float64, so that only the rounding of merging is seen."""
    with torch.no_grad():
        return model.double()(input_ids=IDS).logits


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("tied", [False, True])
def test_only_adapters_move_and_the_loss_falls(tmp_path: Path, tied: bool):
    folder = make_model(tmp_path / "model", tied=tied)
    learner, losses = trained(folder, 8)
    assert losses[-1] < 0.9 * losses[0]
    base = Qwen3ForCausalLM.from_pretrained(folder).state_dict()
    moved, kept = 0, 0
    for name, parameter in learner._model.named_parameters():
        if ".lora_" in name:
            moved += int(bool(parameter.any()))
        else:
            assert torch.equal(parameter, base[name.replace(".base_layer", "")]), name
            kept += 1
    # Two layers with seven linear parts each, A and B of every one.
    assert moved == 2 * 7 * 2
    assert kept == len(list(Qwen3ForCausalLM.from_pretrained(folder).parameters()))


def test_the_gradient_on_trees_is_that_of_branches(model_folder: Path):
    gradients = []
    for merge in (True, False):
        learner, _ = trained(model_folder, 1)
        learner.accumulate(rows(), replace(RECIPE, merge_prefixes=merge))
        gradients.append({n: p.grad for n, p in learner._model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert all(".lora_" in name for name in gradients[0])
    difference = sum(float((gradients[0][n] - g).pow(2).sum()) for n, g in gradients[1].items())
    assert difference < 1e-10 * sum(float(g.pow(2).sum()) for g in gradients[1].values())


def test_merged_weights_are_the_adapted_model(model_folder: Path, tmp_path: Path):
    learner, _ = trained(model_folder, 4)
    learner.publish(tmp_path / "policy")
    adapted = logits(learner._model)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "policy", dtype=torch.float32)
    assert apart(logits(policy), adapted) < 1e-6
    assert apart(logits(Qwen3ForCausalLM.from_pretrained(model_folder)), adapted) > 1e-2
    # peft itself reads what stands beside it.
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    beside = PeftModel.from_pretrained(base, tmp_path / "policy" / "adapter")
    assert apart(logits(beside), adapted) < 1e-6
    assert beside.peft_config["default"].base_model_name_or_path == "models/tiny"


async def test_a_restart_goes_on_as_if_nothing_had_been(tmp_path: Path, model_folder: Path):
    ends: list[list[str]] = []
    for name, restart_after in (("whole", 0), ("restarted", 2)):
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name)
        await bench.create(model_folder, lora_rank=4, learning_rate=1e-2)
        for number in (1, 2, 3):
            await bench.feed(await take_batch(bench, number))
            if number == restart_after:
                bench.restart()
        messages = await bench.published()
        ends.append([m.digest for m in messages if isinstance(m, PolicyPublished)])
    assert len(set(ends[0])) == 4
    assert ends[0] == ends[1]
    completed = [m for m in messages if isinstance(m, StepCompleted)][-1]
    checkpoint = files_under(Path(completed.checkpoint_uri.removeprefix("file://")))
    assert {"adapter/adapter_config.json", "adapter/adapter_model.safetensors"} <= checkpoint
    assert not [name for name in checkpoint if name.startswith("model/")]


async def test_a_published_policy_is_merged_and_its_adapter_is_a_folder_of_its_own(tmp_path: Path, model_folder: Path):
    (tmp_path / "run").mkdir()
    bench = Bench(tmp_path / "run")
    await bench.create(model_folder, lora_rank=2)
    await bench.feed(await take_batch(bench, 1))
    policy = [m for m in await bench.published() if isinstance(m, PolicyPublished)][-1]
    assert policy.adapter
    merged = Path(policy.uri.removeprefix("file://"))
    adapter = merged / "adapter"
    assert files_under(adapter) == {"adapter_config.json", "adapter_model.safetensors"}
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    ours = logits(PeftModel.from_pretrained(base, adapter))
    theirs = logits(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32))
    assert apart(ours, theirs) < 1e-6
