"""Losses, rows, packing, guard and J, against values worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from services.contract.rewards import RewardWeights
from services.contract.trajectory import Node, Span, Trajectory
from services.trainer.adapters.token_logprobs import transformed_logprobs
from services.trainer.domain.episodes import EpisodeInput, plan_batch
from services.trainer.domain.guard import BatchStats, check_mismatch
from services.trainer.domain.losses import Cispo, TokenBatch
from services.trainer.domain.metrics import reward_metrics, staleness_metrics
from services.trainer.domain.packing import halves, micro_batches
from services.trainer.domain.refusal import StepRefused
from services.trainer.domain.rows import rows_of
from services.trainer.domain.training_yield import StepPoint, measure

PERFORMANCE_ONLY = RewardWeights(0.0, 0.0, 1.0)


def turn(node_id: int, parent: int, number: int, ids: tuple[int, ...], *, infra: bool = False) -> Node:
    logprobs = tuple(-float(i) for i in ids)
    spans = (Span(0, 1, 4, "d4"), Span(1, len(ids), 5, "d5")) if len(ids) > 1 else (Span(0, 1, 4, "d4"),)
    return Node(
        node_id, parent, "sampled", number, "assistant", "{}", ids, logprobs, spans, 1.0, 1.0, "stop", infra=infra
    )


def prompt(node_id: int, parent: int, ids: tuple[int, ...]) -> Node:
    return Node(node_id, parent, "context", -1, "user", "{}", ids)


def episode(
    name: str, performance: float, nodes: tuple[Node, ...], *, eligible: bool = True, first: int = 4
) -> EpisodeInput:
    trajectory = Trajectory(name, "run", nodes)
    return EpisodeInput(name, "d", trajectory, performance, (), performance > 0.5, 1.0, first, eligible, "")


CHAIN = (prompt(0, -1, (1, 2)), turn(1, 0, 0, (3, 4)), prompt(2, 1, (5,)), turn(3, 2, 1, (6, 7, 8)))
FORK = (*CHAIN, prompt(4, 1, (9,)), turn(5, 4, 2, (10,)))


def test_cispo_by_hand():
    # ratios e^0 = 1, e^1 = 2.718 cut to 2, e^-1 = 0.368; loss = -weight * A * logp
    logprobs_N = torch.tensor([-1.0, -0.5, -3.0], requires_grad=True)
    sampled_N, advantages_N = torch.tensor([-1.0, -1.5, -2.0]), torch.tensor([1.0, 1.0, -2.0])
    terms = Cispo(2.0).terms(TokenBatch(logprobs_N, sampled_N, advantages_N, torch.zeros(3, dtype=torch.long)))
    assert terms.loss_N.tolist() == pytest.approx([1.0, 1.0, -2.0 * math.exp(-1) * 3.0])
    assert terms.cut_N.tolist() == [False, True, False]
    terms.loss_N.sum().backward()
    # no gradient through the ratio: d loss / d logp = -weight * A, also where the ratio was cut
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.tolist() == pytest.approx([-1.0, -2.0, 2.0 * math.exp(-1)])
    assert "[0, 2]" in Cispo(2.0).describe()


def test_temperature_and_nucleus_are_applied_as_in_sampling():
    # p = (.5, .3, .2); T = 1, top_p = .7 keeps the first two: p(1) = .3/.8
    logits_NV = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(3, 1)
    ids_N = torch.tensor([1, 1, 2])
    answered = transformed_logprobs(logits_NV, ids_N, torch.tensor([1.0, 0.5, 1.0]), torch.tensor([0.7, 1.0, 0.7]))
    # T = .5 squares: .09/.38; the last token lies outside the nucleus, but it was sampled: kept, .2/1
    assert answered.exp().tolist() == pytest.approx([0.3 / 0.8, 0.09 / 0.38, 0.2])


def test_rows_train_each_sampled_token_once_and_context_never():
    plans = plan_batch([[episode("a", 1.0, FORK), episode("b", 0.0, CHAIN)]], PERFORMANCE_ONLY, turn_aligned=False)
    first, second = rows_of(plans[0])
    assert first.token_ids_T.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert first.trained_T.tolist() == [False, False, True, True, False, True, True, True]
    assert second.token_ids_T.tolist() == [1, 2, 3, 4, 9, 10]
    assert second.trained_T.tolist() == [False, False, False, False, False, True]
    assert first.logprobs_T.tolist() == [0, 0, -3, -4, 0, -6, -7, -8]
    assert first.policy_steps_T.tolist() == [-1, -1, 4, 5, -1, 4, 5, 5]
    assert set(first.advantages_T[first.trained_T]) == {1.0}
    assert plans[0].trained_tokens == first.trained_tokens + second.trained_tokens == 6


def test_a_lost_attempt_is_neither_trained_nor_counted():
    nodes = (*CHAIN, turn(4, 0, 2, (11, 12), infra=True), turn(5, 0, 3, (13,)))
    plan, _ = plan_batch([[episode("a", 1.0, nodes), episode("b", 0.0, CHAIN)]], PERFORMANCE_ONLY, turn_aligned=False)
    assert plan.turn_advantages == (1.0, 1.0, 0.0, 1.0)
    assert plan.trained_tokens == 6
    assert sum(row.trained_tokens for row in rows_of(plan)) == 6


def test_process_terms_follow_their_turn_past_a_lost_attempt():
    nodes = (
        prompt(0, -1, (1,)),
        turn(1, 0, 0, (2,), infra=True),
        turn(2, 0, 1, (3,)),
        prompt(3, 2, (4,)),
        turn(4, 3, 2, (5,)),
    )
    mine = replace(episode("a", 1.0, nodes), process=((0, -1.0), (1, -0.5)))
    weights = RewardWeights(0.2, 0.0, 1.0)
    plan, _ = plan_batch([[mine, episode("b", 0.0, CHAIN)]], weights, turn_aligned=False)
    # trained turns 1 and 2: r = (-0.1, 1), to go (0.9, 1); b's baseline share is 0
    assert plan.turn_advantages == pytest.approx((0.0, 0.9, 1.0))
    assert plan.total_reward == pytest.approx(0.9)


def test_a_group_with_one_eligible_member_is_left_out():
    group = [episode("a", 1.0, CHAIN), replace(episode("b", 0.0, CHAIN, eligible=False), why_not="infra")]
    plans = plan_batch([group], PERFORMANCE_ONLY, turn_aligned=False)
    assert [(p.trained, p.why_not) for p in plans] == [(False, "too_few_eligible"), (False, "infra")]


def test_masked_member_leaves_the_groups_statistics():
    group = [episode(n, p, CHAIN, eligible=n != "b") for n, p in (("a", 1.0), ("b", 1.0), ("c", 0.0), ("d", 0.0))]
    plans = plan_batch([group], PERFORMANCE_ONLY, turn_aligned=False)
    assert [p.mean_advantage for p in plans] == pytest.approx([1.0, 0.0, -0.5, -0.5])
    assert [p.trained for p in plans] == [True, False, True, True]


def test_rewards_that_are_not_finite_name_the_episode():
    with pytest.raises(StepRefused, match="episode b: reward terms"):
        plan_batch([[episode("a", 1.0, CHAIN), episode("b", math.nan, CHAIN)]], PERFORMANCE_ONLY, turn_aligned=False)


def test_micro_batches_hold_like_lengths_and_count_padding():
    plans = plan_batch([[episode("a", 1.0, FORK), episode("b", 0.0, FORK)]], PERFORMANCE_ONLY, turn_aligned=False)
    rows = [row for plan in plans for row in rows_of(plan)]  # lengths 8, 6, 8, 6
    assert [[row.length for row in part] for part in micro_batches(rows, 16)] == [[8, 8], [6, 6]]
    assert [[row.length for row in part] for part in micro_batches(rows, 24)] == [[8, 8, 6], [6]]
    assert [[row.length for row in part] for part in micro_batches(rows, 1)] == [[8], [8], [6], [6]]
    first, second = halves(rows)
    assert ({row.episode_id for row in first}, {row.episode_id for row in second}) == ({"a"}, {"b"})


STATS = BatchStats(100, 10, 0.1, 1.0, 1.0, 1.5, 0.0, 0.0, 0.2, 0.05, 0.3, 1.0)


def test_guard_looks_at_fresh_tokens_and_widely_at_stale_ones():
    check_mismatch(STATS, 0.1)
    check_mismatch(STATS, 0.0)
    with pytest.raises(StepRefused, match=r"engine and trainer is 0\.05 over 10 tokens"):
        check_mismatch(STATS, 0.04)
    with pytest.raises(StepRefused, match=r"sampling and trained weights is 0\.2 over 100 tokens"):
        check_mismatch(replace(STATS, fresh_tokens=0), 0.01)
    with pytest.raises(StepRefused, match="loss"):
        check_mismatch(replace(STATS, loss=math.inf), 0.0)


def test_yield_by_hand():
    # rewards .1 .2 .3 .4 at .25 .5 .75 1.0 million tokens: slope .4 a million, exact; 1e6 tokens in 100 s
    points = [StepPoint(0.1 * i, 250_000, 25.0 * i, 1.0) for i in (1, 2, 3, 4)]
    measured = measure(points, 2.0)
    assert measured.efficiency == pytest.approx(0.4)
    assert measured.efficiency_95 == pytest.approx(0.0, abs=1e-7)
    assert measured.tokens_per_s == pytest.approx(10_000)
    assert measured.j == pytest.approx(4_000)
    assert (measured.noise_bounded, measured.not_falling) == (True, True)


def test_yield_conditions_can_fail():
    falling = [StepPoint(-0.1 * i, 1_000, 1.0 * i, 3.0) for i in (1, 2, 3)]
    measured = measure(falling, 2.0)
    assert (measured.noise_bounded, measured.not_falling) == (False, False)
    assert measure([], 2.0).j == 0.0


def test_yield_interval_by_hand():
    # x = 1,2,3 million, y = 0,1,0: slope 0, residual 2/3, sigma^2 = 2/3, Sxx = 2 -> 1.96 * sqrt(1/3)
    points = [StepPoint(y, 1_000_000, float(i), 1.0) for i, y in enumerate((0.0, 1.0, 0.0), 1)]
    measured = measure(points, 2.0)
    assert measured.efficiency == pytest.approx(0.0)
    assert measured.efficiency_95 == pytest.approx(1.96 * math.sqrt(1 / 3))


def test_metrics_count_the_eligible_and_the_stale():
    group = [
        episode("a", 1.0, CHAIN, first=2),
        episode("b", 0.0, CHAIN, first=4),
        replace(episode("c", 1.0, CHAIN, eligible=False), why_not="infra"),
    ]
    plans = plan_batch([group], PERFORMANCE_ONLY, turn_aligned=False)
    metrics = reward_metrics(plans) | staleness_metrics(plans, 4)
    assert metrics["reward_mean"] == metrics["success.d"] == 0.5
    assert (metrics["episodes_trained"], metrics["episodes_left_out"]) == (2.0, 1.0)
    assert (metrics["staleness_mean"], metrics["staleness_max"]) == (1.0, 2.0)


def test_what_was_not_trained_is_no_zero_in_its_domain_s_reward():
    # The only eligible member of its group: it has no baseline, so it gets no reward, and the curve no 0.
    alone = [episode("c", 1.0, CHAIN), replace(episode("d", 1.0, CHAIN, eligible=False), why_not="infra")]
    plans = plan_batch(
        [[episode("a", 1.0, CHAIN), episode("b", 0.5, CHAIN)], alone], PERFORMANCE_ONLY, turn_aligned=False
    )
    metrics = reward_metrics(plans)
    assert metrics["reward_mean"] == metrics["reward_mean.d"] == 0.75
    assert metrics["performance_mean"] == pytest.approx(2.5 / 3)


def test_the_very_first_token_is_never_trained():
    nodes = (turn(0, -1, 0, (3, 4)),)
    plan, _ = plan_batch([[episode("a", 1.0, nodes), episode("b", 0.0, CHAIN)]], PERFORMANCE_ONLY, turn_aligned=False)
    assert np.flatnonzero(rows_of(plan)[0].trained_T).tolist() == [1]
