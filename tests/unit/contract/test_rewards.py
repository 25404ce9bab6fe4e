"""Reward terms and advantages, against values worked out by hand."""

import random

import pytest

from services.contract.rewards import (
    Member,
    RewardWeights,
    group_advantages,
    ordering_problems,
    reward_to_go,
    speed,
    time_base_s,
    token_mean,
    turn_rewards,
)

PLAIN = RewardWeights(alpha=0.0, beta=0.0, gamma=1.0)


def one_turn(performance: float, *, wall_s: float = 1.0, process: tuple[tuple[int, float], ...] = ()) -> Member:
    return Member(performance, process, wall_s, (10,))


def test_performance_is_paid_at_the_last_turn_and_process_where_it_was_earned():
    member = Member(1.0, ((0, -0.5), (1, -0.25)), 2.0, (4, 4, 4))
    assert turn_rewards(member, RewardWeights(0.2, 0.0, 1.0), 1.0) == pytest.approx((-0.1, -0.05, 1.0))


def test_speed_is_half_at_the_base():
    assert speed(3.0, 3.0) == 0.5
    assert speed(0.0, 3.0) == 1.0
    assert speed(9.0, 3.0) == 0.25
    assert speed(1.0, 0.0) == 0.0


def test_time_base_is_the_median_or_the_tasks_reference():
    members = [one_turn(1.0, wall_s=w) for w in (1.0, 2.0, 9.0)]
    assert time_base_s(members, PLAIN) == 2.0
    assert time_base_s(members, RewardWeights(0.0, 0.0, 1.0, 5.0)) == 5.0


def test_process_is_scaled_to_minus_one_at_most():
    member = Member(0.0, ((0, -2.0), (1, -2.0)), 1.0, (4, 4))
    assert turn_rewards(member, RewardWeights(0.1, 0.0, 1.0), 1.0) == pytest.approx((-0.05, -0.05))


def test_reward_to_go_discounts_by_turn():
    assert reward_to_go((1.0, 2.0, 4.0), 0.5) == (3.0, 4.0, 4.0)


def test_token_mean_weighs_turns_by_their_tokens():
    assert token_mean((1.0, 4.0), (2, 1)) == 2.0
    assert token_mean((), ()) == 0.0


def test_masked_sample_leaves_the_statistics():
    # rewards [1, 1, 0, 0] with the second masked: against the mean of the three (1/3) this is [.667, ., -.333, -.333];
    # leave-one-out is that times n/(n-1) = 3/2: [1, ., -.5, -.5].
    advantages = group_advantages([one_turn(r) for r in (1.0, 0.0, 0.0)], PLAIN)
    assert [a[0] for a in advantages] == pytest.approx([1.0, -0.5, -0.5])
    assert [a[0] * 2 / 3 for a in advantages] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_partial_group_is_normalised_over_its_real_members():
    # 5 of 8 alive: [1, 1, 0, 0, 0]; right: 1 - 1/4, wrong: 0 - 2/4
    advantages = group_advantages([one_turn(r) for r in (1.0, 1.0, 0.0, 0.0, 0.0)], PLAIN)
    assert [a[0] for a in advantages] == pytest.approx([0.75, 0.75, -0.5, -0.5, -0.5])


def test_default_baseline_is_the_others_token_averaged_reward_to_go():
    # a: turns of 3 and 1 tokens, rewards (-0.4, 1): to go (0.6, 1), token mean (0.6*3 + 1)/4 = 0.7
    # b: one turn, to go (0), token mean 0.  A_a = (0.6, 1) - 0;  A_b = 0 - 0.7
    weights = RewardWeights(alpha=0.4, beta=0.0, gamma=1.0)
    a = Member(1.0, ((0, -1.0),), 1.0, (3, 1))
    b = Member(0.0, (), 1.0, (5,))
    first, second = group_advantages([a, b], weights)
    assert first == pytest.approx((0.6, 1.0))
    assert second == pytest.approx((-0.7,))


def test_turn_aligned_baseline_takes_the_others_at_the_same_turn():
    weights = RewardWeights(alpha=0.4, beta=0.0, gamma=1.0)
    a = Member(1.0, ((0, -1.0),), 1.0, (3, 1))  # to go (0.6, 1)
    b = Member(0.0, ((1, -0.5),), 1.0, (5, 5))  # to go (-0.2, -0.2)
    c = Member(1.0, (), 1.0, (2,))  # to go (1); beyond its end its last
    first, second, third = group_advantages([a, b, c], weights, turn_aligned=True)
    assert first == pytest.approx((0.6 - 0.4, 1.0 - 0.4))
    assert second == pytest.approx((-0.2 - 0.8, -0.2 - 1.0))
    assert third == pytest.approx((1.0 - 0.2,))


def test_one_vote_an_episode_however_long():
    long = Member(1.0, (), 1.0, (1000, 1000))
    short = Member(0.0, (), 1.0, (1,))
    other = Member(0.0, (), 1.0, (1,))
    assert group_advantages([long, short, other], PLAIN)[1] == pytest.approx((-0.5,))


@pytest.mark.parametrize("beta", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99])
def test_fast_right_beats_slow_right_beats_wrong(alpha: float, beta: float):
    weights = RewardWeights(alpha, beta, 1.0)
    assert ordering_problems(weights, 3) == []
    worst = ((0, -5.0), (1, -5.0))
    fast, slow = (sum(turn_rewards(Member(1.0, worst, w, (1, 1)), weights, 2.0)) for w in (1.0, 4.0))
    crawling = sum(turn_rewards(Member(1.0, worst, 1e9, (1, 1)), weights, 2.0))
    wrong = sum(turn_rewards(Member(0.0, (), 0.0, (1, 1)), weights, 2.0))
    assert fast > slow > crawling > wrong == 0.0


def test_too_large_alpha_is_told():
    assert ordering_problems(RewardWeights(1.0, 0.0, 1.0), 1) != []


def test_a_group_of_one_has_no_baseline():
    with pytest.raises(ValueError, match="at least 2"):
        group_advantages([one_turn(1.0)], PLAIN)


def test_divided_by_the_groups_standard_deviation():
    # token means 1, 0, 0.5: mean 0.5, deviations .5 -.5 0, variance .5/2 = .25, standard deviation .5
    members = [Member(1.0, (), 1.0, (4,)), Member(0.0, (), 1.0, (2,)), Member(0.5, (), 1.0, (2, 6))]
    plain = group_advantages(members, PLAIN)
    assert plain == [pytest.approx((0.75,)), pytest.approx((-0.75,)), pytest.approx((0.0, 0.0))]
    divided = group_advantages(members, PLAIN, divided=True)
    scale = 0.5 + 1e-4
    assert divided == [pytest.approx((0.75 / scale,)), pytest.approx((-0.75 / scale,)), pytest.approx((0.0, 0.0))]
    assert group_advantages([members[0]] * 2, PLAIN, divided=True) == [pytest.approx((0.0,))] * 2


def test_reward_to_go_is_undiscounted_by_default_and_each_turn_sees_only_what_follows():
    assert reward_to_go((-0.5, 0.0, 1.0), 1.0) == (0.5, 1.0, 1.0)
    # a term of an earlier turn never reaches a later one
    assert reward_to_go((-9.0, 0.0, 1.0), 1.0)[1:] == (1.0, 1.0)


def test_leave_one_out_is_independent_of_ones_own_reward():
    others = [one_turn(0.25), one_turn(0.75)]
    for mine in (0.0, 1.0):
        (advantage,) = group_advantages([one_turn(mine), *others], PLAIN)[0]
        assert mine - advantage == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(200))
def test_right_beats_wrong_and_fast_beats_slow_under_any_weights_that_are_allowed(seed: int):
    draw = random.Random(seed)
    max_turns = draw.randint(1, 6)
    gamma = draw.choice([1.0, draw.uniform(0.3, 1.0)])
    weights = RewardWeights(draw.random() * gamma ** (max_turns - 1) * 0.999, draw.uniform(0.0, 50.0) + 1e-6, gamma)
    assert ordering_problems(weights, max_turns) == []

    def first_turn_sees(performance: float, wall_s: float, process: list[tuple[int, float]], turns: int) -> float:
        member = Member(performance, tuple(process), wall_s, (1,) * turns)
        return reward_to_go(turn_rewards(member, weights, 2.0), gamma)[0]

    turns = draw.randint(1, max_turns)
    process = [(t, -draw.random() * 2) for t in range(turns) if draw.random() < 0.7]
    times_s = sorted(draw.uniform(0.0, 100.0) for _ in range(2))
    fast, slow = (first_turn_sees(1.0, wall_s, process, turns) for wall_s in times_s)
    clean_and_instant_but_wrong = first_turn_sees(0.0, 0.0, [], draw.randint(1, max_turns))
    assert fast > slow > clean_and_instant_but_wrong == 0.0
