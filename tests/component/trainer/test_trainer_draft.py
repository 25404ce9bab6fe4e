"""The learner with a draft head: it learns, is saved and published, and the policy is what it is without one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_ranks
from safetensors.torch import load_file
from test_trainer_gradient import OPTIMISER
from test_trainer_ranks import RECIPE, all_rows, of_rank
from transformers import Qwen3ForCausalLM

from services.trainer.adapters.model_folder import weights_digest
from services.trainer.adapters.torch_learner import TorchLearner
from services.trainer.domain.guard import BatchStats
from services.trainer.ranks.group import Group

WITH_HEAD = replace(OPTIMISER, mtp_top_k=8, mtp_learning_rate=1e-2)
UNMERGED = replace(RECIPE, merge_prefixes=False)


def train(learner: TorchLearner, steps: int, recipe: Any = RECIPE) -> list[BatchStats]:
    seen: list[BatchStats] = []
    for _ in range(steps):
        seen.append(learner.accumulate(all_rows(), recipe))
        learner.apply()
    return seen


def started(model: Path, optimiser: Any) -> TorchLearner:
    torch.set_num_threads(1)
    learner = TorchLearner(1)
    learner.start(model, optimiser)
    return learner


def head_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "draft" / "model.safetensors")


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_head_learns_and_the_policy_does_not_notice(model_folder: Path, tmp_path: Path) -> None:
    alone, beside = started(model_folder, OPTIMISER), started(model_folder, WITH_HEAD)
    stats = train(beside, 20)
    assert [dict(s.draft) for s in train(alone, 20)] == [{}] * 20
    assert stats[-1].draft["mtp_kl"] < 0.6 * stats[0].draft["mtp_kl"]
    assert stats[-1].draft["mtp_acceptance"] > stats[0].draft["mtp_acceptance"]
    alone.publish(tmp_path / "alone")
    beside.publish(tmp_path / "beside")
    assert weights_digest(tmp_path / "alone") == weights_digest(tmp_path / "beside")
    assert not (tmp_path / "alone" / "draft").exists()


def test_merged_and_branch_by_branch_the_head_learns_the_same(model_folder: Path, tmp_path: Path) -> None:
    folders: list[Path] = []
    figures: list[dict[str, float]] = []
    for name, recipe in (("merged", RECIPE), ("unmerged", UNMERGED)):
        learner = started(model_folder, WITH_HEAD)
        # Some answers twice: sampled tokens, too, are shared, and not all of them alike.
        stats = learner.accumulate([row for at, row in enumerate(all_rows()) for _ in range(1 + at % 2)], recipe)
        assert (stats.merging.computed_tokens < stats.merging.branch_tokens) is (name == "merged")
        learner.apply()
        figures.append(dict(stats.draft))
        folders.append(tmp_path / name)
        learner.publish(folders[-1])
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)
    merged, unmerged = map(head_of, folders)
    for name, weight in merged.items():
        torch.testing.assert_close(weight, unmerged[name], rtol=0, atol=2e-3)


def test_a_policy_folder_is_an_ordinary_one_with_a_stamped_head_in_it(model_folder: Path, tmp_path: Path) -> None:
    learner = started(model_folder, WITH_HEAD)
    train(learner, 2)
    learner.publish(tmp_path)
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["policy_digest"] == weights_digest(tmp_path)
    names = set(head_of(tmp_path))
    assert {"model.mtp_layers.0.input_proj.weight", "model.mtp_layers.0.self_attn.q_proj.weight"} <= names
    loaded, info = Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and loaded.config.num_hidden_layers == 2
    # A run that starts from this folder goes on with its head.
    again = started(tmp_path, WITH_HEAD)
    again.publish(tmp_path / "again")
    assert same(head_of(tmp_path), head_of(tmp_path / "again"))


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_resumed_run_goes_on_exactly(model_folder: Path, tmp_path: Path, lora_rank: int) -> None:
    optimiser = replace(WITH_HEAD, lora_rank=lora_rank, lora_alpha=4.0)
    learner = started(model_folder, optimiser)
    train(learner, 2)
    learner.save(tmp_path / "checkpoint")
    again = TorchLearner(1)
    again.restore(tmp_path / "checkpoint", optimiser, model_folder)
    for name, one in (("ours", learner), ("theirs", again)):
        train(one, 1)
        one.publish(tmp_path / name)
    assert weights_digest(tmp_path / "ours") == weights_digest(tmp_path / "theirs")
    assert same(head_of(tmp_path / "ours"), head_of(tmp_path / "theirs"))


def at_a_rank(model: Path, optimiser: Any, recipe: Any, group: Group, folder: Path) -> Any:
    learner = TorchLearner(1, group)
    learner.start(model, optimiser)
    stats = learner.accumulate_halves(of_rank(all_rows(), group), recipe)
    learner.apply()
    learner.publish(folder / "two")
    return dict(stats.draft), learner._draft.head.state_dict()


@pytest.mark.parametrize(("lora_rank", "recompute"), [(0, False), (2, True)])
def test_two_ranks_train_the_head_of_one(model_folder: Path, tmp_path: Path, lora_rank: int, recompute: bool) -> None:
    optimiser = replace(WITH_HEAD, lora_rank=lora_rank, lora_alpha=4.0)
    recipe = replace(RECIPE, activation_checkpointing=recompute)
    answers: Sequence[Any] = run_ranks(2, partial(at_a_rank, model_folder, optimiser, recipe), tmp_path)
    one = started(model_folder, optimiser)
    (stats,) = train(one, 1, recipe)
    one.publish(tmp_path / "one")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    assert all(float((ours[n] - w).norm()) <= 1e-5 * float(w.norm()) for n, w in theirs.items())
    assert answers[0][0] == answers[1][0] and same(answers[0][1], answers[1][1])
    for name, figure in stats.draft.items():
        assert answers[0][0][name] == pytest.approx(figure, rel=1e-5)
    for name, weight in one._draft.head.state_dict().items():
        torch.testing.assert_close(answers[0][1][name], weight, rtol=0, atol=2e-3)
