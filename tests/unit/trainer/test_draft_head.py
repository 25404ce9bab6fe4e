"""The draft head: its loss against float64 by hand, forests against branches, and a policy that it leaves alone."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from services.trainer.adapters.draft_head import DraftHead
from services.trainer.adapters.draft_training import DraftSettings, DraftTraining
from services.trainer.domain.distillation import acceptance, top_k_divergence
from services.trainer.domain.refusal import StepRefused
from services.trainer.ranks.alone import Alone
from services.trainer.tree.edges import steps_of
from services.trainer.tree.forest import build_forest
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import WholeForest, hidden_states, on_trees

SETTINGS = DraftSettings(top_k=4, learning_rate=1e-3, max_grad_norm=1.0)


def small_policy(config_type: Any = Qwen3Config, model_type: Any = Qwen3ForCausalLM, seed: int = 0) -> Any:
    config = config_type(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=False,
        initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(seed)
    return model_type(config).double()


def hidden(policy: Any, forest: Any) -> torch.Tensor:
    with torch.no_grad(), on_trees(policy):
        return hidden_states(policy, forest, WholeForest(plan_attention(forest)))


def random_samples(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    stems = [rng.integers(0, 40, 8) for _ in range(2)]
    samples = [
        np.concatenate([stems[i % 2][: rng.integers(0, 9)], rng.integers(0, 40, rng.integers(0, 7))]) for i in range(9)
    ]
    return [*samples, samples[0], stems[0][:1]]


def test_divergence_of_two_tokens_and_the_rest_by_hand() -> None:
    # p = (1/2, 1/4, 1/8, 1/8), q = (1/4, 1/4, 1/4, 1/4); K = 2 leaves 1/4 against 1/2.
    policy, draft = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log(), torch.zeros(1, 4)
    by_hand = 0.5 * math.log(2) + 0.25 * math.log(1) + 0.25 * math.log(0.5)
    assert top_k_divergence(policy, draft, 2).item() == pytest.approx(by_hand, abs=1e-7)
    whole = 0.5 * math.log(2) + 2 * 0.125 * math.log(0.5)
    assert top_k_divergence(policy, draft, 4).item() == pytest.approx(whole, abs=1e-7)
    assert top_k_divergence(policy, draft, 99).item() == pytest.approx(whole, abs=1e-7)
    assert acceptance(policy, draft).item() == pytest.approx(0.25 + 0.25 + 0.125 + 0.125, abs=1e-7)


def test_divergence_equals_a_float64_reference() -> None:
    rng = np.random.default_rng(3)
    policy, draft = rng.normal(0, 3, (50, 30)), rng.normal(0, 3, (50, 30))
    p, q = (np.exp(x - x.max(1, keepdims=True)) for x in (policy, draft))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    wanted: list[float] = []
    for row in range(50):
        top = np.argsort(-p[row])[:7]
        rest = [1 - p[row, top].sum(), 1 - q[row, top].sum()]
        wanted.append((p[row, top] * np.log(p[row, top] / q[row, top])).sum() + rest[0] * np.log(rest[0] / rest[1]))
    got = top_k_divergence(torch.tensor(policy), torch.tensor(draft), 7)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-12, atol=1e-14)
    single = top_k_divergence(torch.tensor(policy).float(), torch.tensor(draft).float(), 7)
    np.testing.assert_allclose(single.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_the_forest_of_the_samples_without_their_roots(seed: int) -> None:
    forest = build_forest(random_samples(seed))
    steps, slots = steps_of(forest)
    assert (forest.parents_S[slots] >= 0).all() and len(slots) == (forest.parents_S >= 0).sum()
    plan = plan_attention(steps, pairs_a_call=0)
    seen = np.zeros((len(slots), len(slots)), int)
    for call in plan.causals:
        assert call.length > 0
        for start in call.starts:
            seen[start : start + call.length, start : start + call.length] += np.tri(call.length, dtype=int)
    for r in plan.rectangles:
        assert r.key_end > r.key_start and r.query_end > r.query_start
        seen[r.query_start : r.query_end, r.key_start : r.key_end] += 1
    wanted = np.zeros_like(seen)
    for step in range(len(slots)):
        above = step
        while above >= 0:
            wanted[step, above] = 1
            above = steps.parents_S[above]
    np.testing.assert_array_equal(seen, wanted)
    for sample in range(len(forest.offsets) - 1):
        np.testing.assert_array_equal(slots[steps.sample_slots(sample)], forest.sample_slots(sample)[1:])


@pytest.mark.parametrize(
    ("config_type", "model_type"), [(Qwen2Config, Qwen2ForCausalLM), (Qwen3Config, Qwen3ForCausalLM)]
)
def test_a_forest_gives_what_its_branches_give(config_type: Any, model_type: Any) -> None:
    policy = small_policy(config_type, model_type)
    samples = [s for s in random_samples(1) if len(s) > 1]
    forest = build_forest(samples)
    head = DraftHead(policy)
    merged, slots = head(hidden(policy, forest), forest)
    steps, _ = steps_of(forest)
    weights = torch.randn(len(forest.slots_N), 32, dtype=torch.float64)
    parts: list[torch.Tensor] = []
    for sample in samples:
        alone = build_forest([sample])
        parts.append(head(hidden(policy, alone), alone)[0])
    single = torch.cat(parts)
    torch.testing.assert_close(merged[torch.from_numpy(steps.slots_N)], single, rtol=1e-6, atol=1e-7)
    weight = weights[: len(single)]
    parameters = list(head.parameters())
    got = torch.autograd.grad((merged[torch.from_numpy(steps.slots_N)] * weight).sum(), parameters)
    for left, right in zip(got, torch.autograd.grad((single * weight).sum(), parameters), strict=True):
        assert torch.linalg.norm(left - right) <= 1e-6 * torch.linalg.norm(right)
    assert len(slots) == len(merged)


def test_the_loss_is_the_divergence_from_the_policy_at_the_slots_before_sampled_tokens() -> None:
    policy = small_policy()
    forest = build_forest(random_samples(2))
    training = DraftTraining(policy, SETTINGS, Alone())
    inner = np.flatnonzero(forest.parents_S >= 0)
    chosen = np.array([s for s in inner if s % 3 == 0])
    loss = training.beside(hidden(policy, forest), forest, chosen)
    with torch.no_grad():
        head_hidden, slots = training.head(hidden(policy, forest), forest)
        where = [slots.tolist().index(s) for s in chosen]
        student = policy.lm_head(head_hidden)[where]
        teacher = policy.lm_head(hidden(policy, forest))[torch.from_numpy(chosen)]
        wanted = top_k_divergence(teacher, student, 4).sum()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-10)


def test_a_slot_that_is_named_twice_counts_twice_so_that_merging_changes_nothing() -> None:
    policy = small_policy()
    samples = [s for s in random_samples(2) if len(s) > 2]
    sums: list[float] = []
    figures: list[dict[str, float]] = []
    gradients: list[list[torch.Tensor]] = []
    for merge in (True, False):
        forest = build_forest(samples, merge=merge)
        slots = np.concatenate([forest.sample_slots(i)[1:-1] for i in range(len(samples))])
        assert (len(np.unique(slots)) < len(slots)) is merge
        training = DraftTraining(policy, SETTINGS, Alone())
        loss = training.beside(hidden(policy, forest), forest, slots)
        loss.backward()
        sums.append(loss.item())
        figures.append(training.figures())
        gradients.append([p.grad for p in training.head.parameters() if p.grad is not None])
    assert sums[0] == pytest.approx(sums[1], rel=1e-6)
    assert figures[0] == pytest.approx(figures[1], rel=1e-6)
    for merged, apart in zip(*gradients, strict=True):
        assert torch.linalg.norm(merged - apart) <= 1e-6 * torch.linalg.norm(apart)


def test_no_gradient_reaches_the_policy_and_a_step_moves_only_the_head() -> None:
    policy = small_policy()
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    forest = build_forest(random_samples(4))
    slots = np.flatnonzero(forest.parents_S >= 0)
    training = DraftTraining(policy, SETTINGS, Alone())
    hidden_SE = hidden(policy, forest).requires_grad_()
    losses: list[float] = []
    figures: dict[str, float] = {}
    for _ in range(30):
        loss = training.beside(hidden_SE, forest, slots)
        loss.backward()
        figures = training.figures()
        losses.append(figures["mtp_kl"])
        training.apply()
    assert hidden_SE.grad is None and all(p.grad is None for p in policy.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())
    assert losses[-1] < 0.7 * losses[0]
    assert 0.0 < figures["mtp_acceptance"] <= 1.0


def test_a_restored_head_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    policy = small_policy()
    forest = build_forest(random_samples(5))
    slots = np.flatnonzero(forest.parents_S >= 0)
    first = DraftTraining(policy, SETTINGS, Alone())

    def step(training: DraftTraining) -> None:
        training.beside(hidden(policy, forest), forest, slots).backward()
        training.apply()

    step(first)
    first.save(tmp_path)
    again = DraftTraining(policy, SETTINGS, Alone())
    again.restore(tmp_path)
    for training in (first, again):
        step(training)
    for left, right in zip(first.head.state_dict().values(), again.head.state_dict().values(), strict=True):
        assert torch.equal(left, right)


def test_a_head_starts_from_what_a_model_folder_brings(tmp_path: Path) -> None:
    policy = small_policy()
    first = DraftTraining(policy, SETTINGS, Alone())
    with torch.no_grad():
        first.head.input_proj.weight.mul_(0.5)
    first.publish(tmp_path, "digest-1")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["policy_digest"] == "digest-1" and config["num_nextn_predict_layers"] == 1
    again = DraftTraining(policy, SETTINGS, Alone())
    again.start(tmp_path)
    for left, right in zip(first.head.state_dict().values(), again.head.state_dict().values(), strict=True):
        assert torch.equal(left, right)
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(StepRefused, match="draft head"):
        again.start(tmp_path)


def test_a_model_that_the_draft_path_does_not_carry_is_named() -> None:
    with pytest.raises(StepRefused, match=r"training\.mtp_top_k: given a llama model; allowed with qwen2, qwen3"):
        DraftTraining(small_policy(LlamaConfig, LlamaForCausalLM), SETTINGS, Alone())


def test_a_forest_without_a_step_costs_nothing() -> None:
    policy = small_policy()
    forest = build_forest([np.array([3]), np.array([5])])
    training = DraftTraining(policy, SETTINGS, Alone())
    loss = training.beside(hidden(policy, forest), forest, np.array([], dtype=np.int64))
    assert not loss.requires_grad and loss.item() == 0.0
    before = [weight.clone() for weight in training.head.parameters()]
    training.apply()
    assert training.figures() == {} and all(map(torch.equal, before, training.head.parameters()))
