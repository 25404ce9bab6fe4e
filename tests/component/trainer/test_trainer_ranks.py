"""One process against two: the same loss, gradient and weights, whatever share of the rows a rank has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import run_ranks
from safetensors.torch import load_file
from test_trainer_gradient import CAP, OPTIMISER, batch

from services.contract.rewards import RewardWeights
from services.trainer.adapters.model_folder import weights_digest
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.episodes import plan_batch
from services.trainer.domain.losses import Cispo
from services.trainer.domain.packing import halves
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import Row, RowRules, batch_rows
from services.trainer.ports import Recipe
from services.trainer.ranks.group import Group
from services.trainer.ranks.sharding import local
from services.trainer.ranks.shares import distinct_tokens, shares

pytestmark = pytest.mark.timeout(240)
RECIPE = Recipe(Cispo(CAP), 0, 40)
RECOMPUTED = replace(RECIPE, activation_checkpointing=True)
STEPS = 4
LOW_RANK = replace(OPTIMISER, lora_rank=4, lora_alpha=8.0)


def all_rows() -> list[Row]:
    plans = plan_batch(batch(), RewardWeights(0.0, 0.0, 1.0), turn_aligned=False)
    return list(batch_rows(plans, RowRules(0)).rows)


def masked(row: Row) -> Row:
    return replace(row, trained_T=np.zeros(row.length, np.bool_))


def of_rank(rows: Sequence[Row], group: Group) -> list[list[Row]]:
    return [shares(half, group.size)[group.rank] for half in halves(rows)]


def gradients(learner: TorchLearner, group: Group) -> dict[str, torch.Tensor]:
    return group.full((name, p.grad) for name, p in learner._model.named_parameters())


def weights(learner: TorchLearner, group: Group) -> dict[str, torch.Tensor]:
    return group.full(learner._model.named_parameters())


def copied(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def moments(learner: TorchLearner) -> Any:
    for name, parameter in learner._model.named_parameters():
        for key, value in learner._optimiser.state[parameter].items():
            yield f"{name}.{key}", value


def resident_bytes(learner: TorchLearner) -> int:
    tensors = [p.detach() for p in learner._model.parameters()]
    tensors += [value for _, value in moments(learner)]
    return sum(local(t).numel() * t.element_size() for t in tensors)


def at_a_rank(model: Path, one: Path, group: Group, folder: Path) -> dict[str, Any]:
    """What a rank does in this file, at once, so that processes start once."""
    seen: dict[str, Any] = {}
    learner = TorchLearner(1, group)
    learner.start(model, OPTIMISER)
    # Ranks measure together, before the first step; nothing is left of it.
    seen["pace"] = learner.measure_pace(RECIPE)
    rows = all_rows()
    seen["dealt"] = (learner.accumulate_halves(of_rank(rows, group), RECIPE), gradients(learner, group))
    idle = halves(rows) if group.rank == 0 else ([], [])
    seen["idle"] = (learner.accumulate_halves(idle, RECIPE), gradients(learner, group))
    untrained = [[masked(row) for row in half] for half in halves(rows)]
    seen["masked"] = (
        learner.accumulate_halves(halves(rows) if group.rank == 1 else untrained, RECIPE),
        gradients(learner, group),
    )
    broken = [replace(rows[0], logprobs_T=np.full(rows[0].length, math.nan)), *rows[1:]]
    try:
        learner.accumulate_halves(of_rank(broken, group), RECIPE)
    except StepRefused as refused:
        seen["refused"] = refused.detail
    learner.start(model, OPTIMISER)
    seen["norms"] = []
    for _ in range(STEPS):
        learner.accumulate_halves(of_rank(rows, group), RECIPE)
        seen["norms"].append(learner.apply())
    seen["bytes"] = resident_bytes(learner)
    learner.save(folder / "two")
    seen["weights"], seen["moments"] = copied(weights(learner, group)), copied(group.full(moments(learner)))
    learner.restore(one, OPTIMISER)
    seen["one"] = (copied(weights(learner, group)), copied(group.full(moments(learner))))
    learner.accumulate_halves(of_rank(rows, group), RECIPE)
    learner.apply()
    seen["one after"] = copied(weights(learner, group))
    learner.start(model, LOW_RANK)
    for _ in range(2):
        learner.accumulate_halves(of_rank(rows, group), RECIPE)
        learner.apply()
    learner.save(folder / "adapter")
    learner.publish(folder / "merged")
    learner.start(model, OPTIMISER)
    seen["recomputed"] = (learner.accumulate_halves(of_rank(rows, group), RECOMPUTED), gradients(learner, group))
    return seen


@pytest.fixture(scope="module")
def single(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same by one process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("one")
    learner = TorchLearner(1)
    learner.start(model_folder, OPTIMISER)
    stats = learner.accumulate(all_rows(), RECIPE)
    gradient = {name: p.grad.clone() for name, p in learner._model.named_parameters()}
    learner.start(model_folder, OPTIMISER)
    norms: list[float] = []
    for _ in range(STEPS):
        learner.accumulate(all_rows(), RECIPE)
        norms.append(learner.apply())
    learner.save(folder)
    state = {name: value.clone() for name, value in moments(learner)}
    at_save = {name: p.detach().clone() for name, p in learner._model.named_parameters()}
    size = resident_bytes(learner)
    learner.accumulate(all_rows(), RECIPE)
    learner.apply()
    after = {name: p.detach().clone() for name, p in learner._model.named_parameters()}
    return {
        "folder": folder,
        "stats": stats,
        "gradient": gradient,
        "norms": norms,
        "weights": at_save,
        "moments": state,
        "bytes": size,
        "after": after,
    }


@pytest.fixture(scope="module")
def pair(single: dict[str, Any], model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("pair")
    answers = run_ranks(2, partial(at_a_rank, model_folder, single["folder"]), folder)
    answers[0]["folder"] = folder / "two"
    return answers


def apart(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> float:
    """Relative difference by norm."""
    assert ours.keys() == theirs.keys()
    difference = sum(float((ours[name].double() - theirs[name].double()).pow(2).sum()) for name in theirs)
    return math.sqrt(difference / sum(float(tensor.double().pow(2).sum()) for tensor in theirs.values()))


@pytest.mark.parametrize("shares_of", ["dealt", "idle", "masked", "recomputed"])
def test_loss_and_gradient_of_two_processes_are_those_of_one(single: Any, pair: Any, shares_of: str):
    stats, gradient = pair[0][shares_of]
    assert apart(gradient, single["gradient"]) < 1e-6
    for name in ("tokens", "loss", "entropy", "ratio_mean", "ratio_max", "clip_share", "mismatch_kl", "grad_noise"):
        assert getattr(stats, name) == pytest.approx(getattr(single["stats"], name), rel=1e-6), name
    assert pair[1][shares_of][0] == stats


def test_ranks_measure_their_pace_together(pair: Any):
    assert all(answer["pace"].operation_s > 0 and answer["pace"].call_s > 0 for answer in pair)


def test_both_ranks_refuse_what_one_of_them_saw(pair: Any):
    assert pair[0]["refused"] == pair[1]["refused"]
    assert "episode a" in pair[0]["refused"]


def test_weights_and_optimiser_agree_after_several_steps(single: Any, pair: Any):
    assert pair[0]["norms"][0] == pytest.approx(single["norms"][0], rel=1e-6)
    assert apart(pair[0]["weights"], single["weights"]) < 1e-6
    # Adam moves by the sign of what is rounding noise, so from the second step on gradients differ a little.
    assert pair[0]["norms"] == pytest.approx(single["norms"], rel=1e-4)
    for key in (".exp_avg", ".exp_avg_sq"):
        ours, theirs = (
            {n: t for n, t in m.items() if n.endswith(key)} for m in (pair[0]["moments"], single["moments"])
        )
        assert apart(ours, theirs) < 1e-4, key


def test_a_checkpoint_of_two_loads_into_one_bit_by_bit(single: Any, pair: Any, model_folder: Path):
    learner = TorchLearner(1)
    learner.restore(pair[0]["folder"], OPTIMISER)
    for name, parameter in learner._model.named_parameters():
        assert torch.equal(parameter, pair[0]["weights"][name]), name
    for name, value in moments(learner):
        assert torch.equal(value, pair[0]["moments"][name]), name
    learner.accumulate(all_rows(), RECIPE)
    learner.apply()
    after = {name: p.detach() for name, p in learner._model.named_parameters()}
    assert apart(after, single["after"]) < 1e-6


def test_a_checkpoint_of_one_loads_into_two_bit_by_bit(single: Any, pair: Any):
    loaded, state = pair[0]["one"]
    for name, tensor in single["weights"].items():
        assert torch.equal(loaded[name], tensor), name
    for name, tensor in single["moments"].items():
        assert torch.equal(state[name], tensor), name
    assert apart(pair[0]["one after"], single["after"]) < 1e-6


def test_the_policy_of_two_has_the_files_of_one(single: Any, pair: Any, tmp_path: Path):
    ours, theirs = pair[0]["folder"], single["folder"]
    names = [sorted(p.name for p in (folder / "model").iterdir()) for folder in (ours, theirs)]
    assert names[0] == names[1]
    assert (ours / "model" / "config.json").read_text() == (theirs / "model" / "config.json").read_text()
    learner = TorchLearner(1)
    learner.restore(ours, OPTIMISER)
    learner.save(tmp_path)
    assert weights_digest(tmp_path / "model") == weights_digest(ours / "model")


def test_a_rank_holds_half_of_weights_and_optimiser(single: Any, pair: Any):
    sizes = [answer["bytes"] for answer in pair]
    # Rows of a weight can't be halved where there is one; the optimiser's step counts stand at both.
    assert max(sizes) < 0.52 * single["bytes"]
    assert sum(sizes) >= single["bytes"]


def test_adapters_of_two_processes_are_those_of_one(pair: Any, model_folder: Path, tmp_path: Path):
    learner = TorchLearner(1)
    learner.start(model_folder, LOW_RANK)
    for _ in range(2):
        learner.accumulate(all_rows(), RECIPE)
        learner.apply()
    learner.publish(tmp_path / "merged")
    ours, theirs = (load_file(f / "merged" / "model.safetensors") for f in (pair[0]["folder"].parent, tmp_path))
    assert apart(ours, theirs) < 1e-6
    # Their checkpoint is small, and one process goes on from it.
    folder = pair[0]["folder"].parent / "adapter"
    assert not (folder / "model").exists()
    learner.restore(folder, LOW_RANK, model_folder)
    learner.publish(tmp_path / "again")
    assert weights_digest(tmp_path / "again") == weights_digest(folder.parent / "merged")


def test_rows_are_dealt_whole_and_evenly():
    rows = all_rows()
    dealt = shares(rows, 2)
    assert sorted(id(row) for share in dealt for row in share) == sorted(id(row) for row in rows)
    loads = [distinct_tokens(share) for share in dealt]
    assert max(loads) <= 1.25 * sum(loads) / 2
    assert [len(share) for share in shares(rows[:1], 3)] == [1, 0, 0]
