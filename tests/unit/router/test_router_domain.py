"""The router's pure decisions, with numbers worked out by hand."""

import struct
from hashlib import blake2b

import pytest

from services.router.domain.chain import chain
from services.router.domain.cost import Call, Cost, choose, cost_of
from services.router.domain.fit import OnlineFit
from services.router.domain.index import BlockIndex
from services.router.domain.speed import Ended, Speed


def ids(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def test_a_chain_names_full_blocks_under_its_digest_and_leaves_the_last_token_out() -> None:
    names = chain("d1", ids(1, 2, 3, 4, 5), 2)
    first = blake2b(ids(1, 2), digest_size=16, key=blake2b(b"d1", digest_size=16).digest()).digest()
    assert names == [first, blake2b(ids(3, 4), digest_size=16, key=first).digest()]
    # Four tokens: the second block holds the last token, which an engine always computes.
    assert chain("d1", ids(1, 2, 3, 4), 2) == names[:1]
    assert chain("d1", ids(1), 2) == []


def test_the_same_prompt_under_another_policy_shares_no_name() -> None:
    prompt = ids(*range(100))
    assert not set(chain("d1", prompt, 32)) & set(chain("d2", prompt, 32))


def test_names_cover_everything_before_them() -> None:
    one, other = chain("d", ids(1, 2, 9, 9, 0), 2), chain("d", ids(1, 3, 9, 9, 0), 2)
    assert one[0] != other[0] and one[1] != other[1]


def test_an_index_counts_the_prefix_it_holds_and_forgets_the_least_recent() -> None:
    index = BlockIndex(3)
    names = chain("d", ids(*range(9)), 2)
    index.add(names)
    # It was the first that went, so that nothing counted from the beginning: engines let the tail go, and so
    # does the index.
    assert len(names) == 4 and len(index) == 3
    assert index.hit_blocks(names) == 3
    other = chain("d", ids(*range(50, 55)), 2)
    index.add(other)
    assert len(other) == 2
    assert (index.hit_blocks(names), index.hit_blocks(other)) == (1, 2)


def test_what_the_engine_says_of_a_routed_chain_does_not_let_its_head_go_first() -> None:
    index = BlockIndex(3)
    names = chain("d", ids(*range(7)), 2)
    index.add(names)
    index.stored(b"e1", b"", ids(0, 1), "d")
    index.stored(b"e2", b"e1", ids(2, 3), "d")
    index.stored(b"e3", b"e2", ids(4, 5), "d")
    index.add(chain("d", ids(90, 91, 92), 2))
    assert index.hit_blocks(names) == 2


def test_engine_events_are_named_anew_by_their_token_ids() -> None:
    index = BlockIndex(10)
    names = chain("d", ids(*range(5)), 2)
    index.stored(b"e1", b"", ids(0, 1), "d")
    index.stored(b"e2", b"e1", ids(2, 3), "")
    assert index.hit_blocks(names) == 2
    index.removed(b"e2")
    assert index.hit_blocks(names) == 1
    index.stored(b"e9", b"unknown", ids(7, 7), "d")
    assert len(index) == 1
    index.clear()
    assert index.hit_blocks(names) == 0


def test_the_fit_finds_the_coefficients_that_made_the_samples() -> None:
    fit = OnlineFit((0.0, 0.0, 0.0), trust=100.0, forget=1.0)
    for number in range(200):
        x, y = number % 7 / 7, number % 5 / 5
        fit.learn((1.0, x, y), 0.3 + 2.0 * x + 0.5 * y)
    assert fit.coefficients == pytest.approx((0.3, 2.0, 0.5), abs=5e-3)


def test_the_fit_follows_a_change_and_never_shows_a_negative_part() -> None:
    fit = OnlineFit((0.0, 0.0), trust=100.0, forget=0.9)
    for number in range(100):
        fit.learn((1.0, number % 3), 1.0 + number % 3)
    for number in range(200):
        fit.learn((1.0, number % 3), 5.0 - 0.5 * (number % 3))
    assert fit.coefficients[0] == pytest.approx(5.0, abs=0.01)
    assert fit.coefficients[1] == 0.0


def test_speed_learns_prefill_and_decode_from_ended_calls() -> None:
    speed = Speed()
    for number in range(400):
        computed, hit = 100 + 37 * (number % 20), 32 * (number % 5)
        prefill_s = 0.02 + 1e-4 * computed + 2e-8 * computed * (hit + computed / 2)
        total_s = prefill_s + 39 * (0.01 + 0.001 * (number % 8))
        speed.learn(Ended(computed + hit, hit, 40, prefill_s, total_s, running=number % 8))
    assert speed.prefill_coefficients == pytest.approx((0.02, 1e-4, 2e-8), rel=0.05)
    # 0.02 + 0.05 + 2e-8 * 500 * (0 + 250) = 0.0725
    assert speed.prefill_s(500, 0) == pytest.approx(0.0725, rel=0.02)
    # Calls sample 40 tokens here: 40 * (0.01 + 4 * 0.001)
    assert speed.decode_s(1000, 4) == pytest.approx(0.56, rel=0.03)
    assert speed.decode_s(10, 4) == pytest.approx(0.14, rel=0.03)


def test_cost_takes_the_source_that_is_cheapest() -> None:
    speed = Speed()
    none = cost_of(Call(1000, 10, own_hit=0, pool_hit=0), speed, queue_s=0.1, running=0)
    # The prior: 0.015 + 0.1 * 1 + 0.02 * 0.5
    assert (none.source, none.prefill_s, none.queue_s) == ("none", pytest.approx(0.125), 0.1)
    engine = cost_of(Call(1000, 10, own_hit=960, pool_hit=0), speed, 0.1, 0)
    # 40 to compute: 0.015 + 0.004 + 0.02 * 0.04 * 0.98
    assert (engine.source, engine.prefill_s) == ("engine", pytest.approx(0.019784))
    pool = cost_of(Call(1000, 10, own_hit=0, pool_hit=960), speed, 0.1, 0)
    # fetched: 0.02 + 0.01 * 0.96
    assert (pool.source, pool.fetch_s, pool.fetched_tokens) == ("l3", pytest.approx(0.0296), 960)
    # 64 tokens from the pool save less than a fetch costs.
    assert cost_of(Call(100, 10, own_hit=0, pool_hit=64), speed, 0.1, 0).source == "none"


def cost(total_s: float) -> Cost:
    return Cost("none", 0, 0, total_s, 0.0, 0.0, 0.0)


def test_only_near_ties_are_drawn() -> None:
    costs = [("a", cost(1.0)), ("b", cost(1.04)), ("c", cost(2.0))]
    assert [choose(costs, 0.05, draw) for draw in (0.0, 0.5, 0.52, 0.999)] == ["a", "a", "b", "b"]
    assert choose(costs, 0.0, 0.999) == "a"
