"""A batch trained on trees equals the same batch trained branch by branch: loss, gradients, numbers and weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from tree_cases import VOCABULARY, exact_model, nucleus_logprob, random_samples, relative_error

from services.trainer.adapters.batch_pass import BatchPass
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.losses import Cispo, Gspo, Interval, Loss
from services.trainer.domain.losses.interface import TokenBatch
from services.trainer.domain.packing import halves
from services.trainer.domain.rows import Row
from services.trainer.ports import Recipe
from services.trainer.ranks.alone import Alone


def random_rows(rng: np.random.Generator, count: int, longest: int) -> list[Row]:
    """Rows of three groups that share prefixes across members, turns and groups; some are equal."""
    samples = [ids for ids in random_samples(rng, count, longest) if len(ids) > 1]
    return [row_of(ids, index, rng) for index, ids in enumerate(samples)]


def row_of(ids_T: NDArray[np.int64], index: int, rng: np.random.Generator) -> Row:
    trained_T = rng.random(len(ids_T)) < 0.6
    trained_T[0], trained_T[1] = False, True
    return Row(
        episode_id=f"e{index // 2}",
        group_id=f"g{index // 4}",
        domain="tool",
        token_ids_T=ids_T,
        trained_T=trained_T,
        advantages_T=trained_T * rng.normal(size=len(ids_T)),
        logprobs_T=trained_T * (-3 + 0.3 * rng.normal(size=len(ids_T))),
        temperatures_T=np.where(trained_T, rng.choice([0.8, 1.0]), 1.0),
        top_ps_T=np.where(trained_T, rng.choice([0.9, 1.0]), 1.0),
        policy_steps_T=np.zeros(len(ids_T), np.int64),
        turns_T=np.zeros(len(ids_T), np.int64),
        weights_T=trained_T / (10.0 * len(ids_T)),
    )


def run(model: Any, rows: Sequence[Row], recipe: Recipe) -> tuple[BatchStats, list[Tensor]]:
    stats = BatchPass(model, recipe, Alone()).run(halves(rows))
    return stats, [p.grad if p.grad is not None else torch.zeros(()) for p in model.parameters()]


def branch_by_branch(model: Any, rows: Sequence[Row], loss: Loss) -> tuple[float, list[Tensor]]:
    """Plainly: each row alone, its logits whole."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        logits_TV = model(input_ids=torch.from_numpy(row.token_ids_T)[None], use_cache=False).logits[0]
        places = np.flatnonzero(row.trained_T).tolist()
        logprobs_N = torch.stack(
            [
                nucleus_logprob(
                    logits_TV[t - 1] / row.temperatures_T[t], int(row.token_ids_T[t]), float(row.top_ps_T[t])
                )
                for t in places
            ]
        )
        picked = [torch.from_numpy(array_T[row.trained_T]) for array_T in (row.logprobs_T, row.advantages_T)]
        terms = loss.terms(TokenBatch(logprobs_N, *picked, torch.zeros(len(places), dtype=torch.int64)))
        total = total + (torch.from_numpy(row.weights_T[row.trained_T]) * terms.loss_N).sum()
    gradients = torch.autograd.grad(total, list(model.parameters()))
    return float(total.detach()), list(gradients)


@pytest.mark.parametrize("loss", [Cispo(5.0), Gspo(Interval(0.3, 0.4))])
@pytest.mark.parametrize("seed", range(3))
def test_equals_branch_by_branch(seed: int, loss: Loss) -> None:
    rng = np.random.default_rng(seed)
    model = exact_model(seed)
    rows = random_rows(rng, 9, 10)
    value, wanted = branch_by_branch(model, rows, loss)
    for budget, recompute, merge in [(10_000, False, True), (5, True, True), (5, False, True), (40, True, False)]:
        stats, got = run(model, rows, Recipe(loss, 0, budget, merge, recompute))
        assert stats.loss == pytest.approx(value, rel=1e-12)
        assert stats.tokens == sum(row.trained_tokens for row in rows)
        assert relative_error(got, wanted) <= 1e-12
        # It was merged where that was asked for, and not where it wasn't.
        assert (stats.merging.computed_tokens < stats.merging.branch_tokens) == merge
        assert stats.merging.reasons == ()


def test_what_was_merged_is_counted() -> None:
    rng = np.random.default_rng(0)
    prompt_T = rng.integers(0, VOCABULARY, 60)
    rows = [row_of(np.concatenate([prompt_T, rng.integers(0, VOCABULARY, 4)]), 0, rng) for _ in range(4)]
    for row in rows:
        # Nothing after the first answered token is trained, so that nothing after it is computed.
        row.trained_T[:] = False
        row.trained_T[60] = True
    stats, _ = run(exact_model(), rows, Recipe(Cispo(5.0), 0, 10_000))
    metrics = stats.merging.metrics()
    distinct = len({int(row.token_ids_T[60]) for row in rows})
    assert (metrics["branch_tokens"], metrics["tree_tokens"]) == (4 * 61, 60 + distinct)
    assert metrics["merge_factor"] == pytest.approx(4 * 61 / (60 + distinct))
    assert 2 < metrics["merge_theory"] <= 4
    assert metrics["merge_fallback"] == 0.0


def test_what_cannot_be_merged_is_trained_branch_by_branch_and_says_why() -> None:
    rng = np.random.default_rng(1)
    model, rows = exact_model(1), random_rows(rng, 6, 8)
    _, wanted = run(model, rows, Recipe(Cispo(5.0), 0, 10_000))
    model.config.num_experts = 4
    stats, got = run(model, rows, Recipe(Cispo(5.0), 0, 10_000))
    assert stats.merging.reasons == ("mixture of experts: the auxiliary loss depends on how often a token is counted",)
    assert stats.merging.metrics()["merge_fallback"] == 1.0
    assert stats.merging.metrics()["merge_factor"] == 1.0
    assert relative_error(got, wanted) <= 1e-12


def test_rows_without_anything_in_common_are_laid_end_to_end() -> None:
    rng = np.random.default_rng(2)
    rows = [row_of(np.concatenate([[k], rng.integers(0, VOCABULARY, 5)]), k, rng) for k in range(3)]
    stats, _ = run(exact_model(), rows, Recipe(Cispo(5.0), 0, 10_000))
    assert stats.merging.reasons == ("nothing is shared",)


def test_weights_agree_after_fifty_steps() -> None:
    models = [exact_model(3, layers=1), exact_model(3, layers=1)]
    optimisers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in models]
    for step in range(50):
        rows = random_rows(np.random.default_rng(step + 100), 5, 6)
        for model, optimiser, merge in zip(models, optimisers, (True, False), strict=True):
            run(model, rows, Recipe(Cispo(5.0), 0, 100, merge))
            optimiser.step()
    weights = [list(model.parameters()) for model in models]
    start = list(exact_model(3, layers=1).parameters())
    assert relative_error(weights[0], start) > 1e-3
    assert relative_error(weights[0], weights[1]) <= 1e-8


def test_a_library_model_agrees_to_its_own_rounding() -> None:
    """Its norms round to float32 whatever the weights are."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model: Any = Qwen3ForCausalLM(config).double()
    rows = random_rows(np.random.default_rng(4), 8, 10)
    value, wanted = branch_by_branch(model, rows, Cispo(5.0))
    stats, got = run(model, rows, Recipe(Cispo(5.0), 0, 6))
    assert stats.merging.computed_tokens < stats.merging.branch_tokens
    assert stats.loss == pytest.approx(value, rel=1e-6)
    assert relative_error(got, wanted) <= 1e-6
