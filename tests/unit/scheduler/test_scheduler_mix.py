"""The mix of domains and what a client is asked to submit, worked by hand."""

from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.capacity import capacity
from services.scheduler.domain.decisions import AdmitItem
from services.scheduler.domain.mix import Mix

WEIGHTS = (("a", 2.0), ("b", 1.0), ("c", 1.0))


def turns(mix: Mix, waiting: list[str], count: int) -> str:
    order = ""
    for _ in range(count):
        domain = mix.next(waiting)
        assert domain is not None
        mix.took(domain, waiting)
        order += domain
    return order


def test_smooth_weighted_round_robin() -> None:
    # Credits after adding the weights: a2 b1 c1 -> a (-2); a0 b2 c2 -> b (-2); a2 b-1 c3 -> c (-1); a4 … -> a.
    assert turns(Mix(WEIGHTS, 10), ["a", "b", "c"], 8) == "abcaabca"


def test_a_domain_that_was_away_does_not_flood_the_queue() -> None:
    mix = Mix(WEIGHTS, 10)
    assert turns(mix, ["b", "c"], 4) == "bcbc"
    # Half of the four turns were a's. Half of a turn given back was its own anyhow: three turns in every second place.
    assert turns(mix, ["a", "b", "c"], 8) == "aaabacaa"
    assert turns(mix, ["a", "b", "c"], 8).count("a") == 4, "and no more than that"


def test_what_is_owed_is_bounded() -> None:
    mix = Mix((("a", 1.0), ("b", 1.0)), 3)
    assert turns(mix, ["b"], 100) == "b" * 100
    # Three are owed of the fifty that it missed: five turns given back of half a turn each, the last leaves half a one.
    assert turns(mix, ["a", "b"], 10) == "aaabaaabaa"
    assert turns(mix, ["a", "b"], 10).count("a") == 5


def test_a_client_that_submits_one_domain_after_the_other_gets_the_mix_all_the_same() -> None:
    rig = Rig(domains=(("a", 1.0), ("b", 1.0)), in_flight_items=10, items_per_batch=1, window_items=1, owed_items=10)
    for domain in "ab":
        rig.submit(*[f"{domain}{index}" for index in range(40)], domain=domain)
    assert "".join(item.domain for item in rig.state.queue.values()) == "a" * 10
    admitted_domains = ["a"] * 10
    while len(admitted_domains) < 40:
        head = rig.state.queue[rig.state.head]
        for decision in rig.finish(head.group_id):
            if isinstance(decision, AdmitItem):
                admitted_domains.append(rig.state.items[decision.group_id].domain)
    assert admitted_domains[:40].count("a") == 21, "what is owed below one whole turn waits"


def test_nobody_waits() -> None:
    assert Mix(WEIGHTS, 10).next([]) is None


def test_positions_follow_the_mix_however_groups_were_submitted() -> None:
    rig = Rig(opened=False, domains=WEIGHTS, in_flight_items=8, window_items=8)
    for domain in "cba":
        rig.submit(*[f"{domain}{i}" for i in range(4)], domain=domain)
    rig.feed(facts.RunOpened(rig.config))
    rig.feed(facts.PolicyPublished(0))
    assert "".join(item.domain for item in rig.state.queue.values()) == "abcaabca"


def test_slow_tasks_keep_their_share() -> None:
    """Every fifth task takes ten times as long; of what is consumed, it is a fifth."""
    shares = (("fast", 4.0), ("slow", 1.0))
    rig = Rig(domains=shares, in_flight_items=5, items_per_batch=1, window_items=10, lookahead_steps=1000)
    due: list[tuple[float, str]] = []
    made = {"fast": 0, "slow": 0}
    while rig.state.handed < 200:
        for domain, count in capacity(rig.state).wanted.items():
            for _ in range(count):
                rig.submit(f"{domain}{made[domain]}", domain=domain)
                made[domain] += 1
        known = {episode for _, episode in due}
        for item in rig.state.queue.values():
            if not item.finished and item.group_id not in known:
                due.append((rig.now_s + (10.0 if item.domain == "slow" else 1.0), item.group_id))
        due.sort()
        rig.now_s, episode = due.pop(0)
        rig.finish(episode)
    mix = rig.state.tally.achieved_mix()
    assert abs(mix["slow"] - 0.2) < 0.02
    assert rig.state.tally.dropped == {}


def test_capacity_asks_for_a_queue_full_by_share() -> None:
    rig = Rig(domains=WEIGHTS, in_flight_items=1)  # N = 10: 5, 2.5 -> 3, 3
    assert capacity(rig.state).wanted == {"a": 5, "b": 3, "c": 3}
    rig.submit("a0", "a1", domain="a")  # one is admitted, one waits
    found = capacity(rig.state)
    assert (found.waiting, found.wanted) == ({"a": 1, "b": 0, "c": 0}, {"a": 4, "b": 3, "c": 3})
    assert found.target == {"a": 6, "b": 3, "c": 3}


def test_capacity_counts_groups_that_are_not_complete() -> None:
    rig = Rig(group_size=4)
    rig.submit("x", group="g")
    assert capacity(rig.state).wanted == {"a": 9}


def test_capacity_shrinks_towards_the_end_and_ends() -> None:
    rig = Rig(end_steps=2, domains=(("a", 1.0), ("b", 1.0)))  # P = 2: four items in all
    assert capacity(rig.state).wanted == {"a": 2, "b": 2}
    for domain in "ab":
        rig.submit(f"{domain}0", f"{domain}1", domain=domain)
    assert capacity(rig.state).wanted == {"a": 1, "b": 1}, "one spare each, should an item be dropped"
    for episode in ("a0", "b0", "a1", "b1"):
        rig.finish(episode)
    assert rig.state.handed == 2
    assert capacity(rig.state).wanted == {"a": 0, "b": 0}


def test_no_capacity_before_the_run_is_known_nor_after_its_end() -> None:
    rig = Rig(opened=False)
    assert capacity(rig.state).wanted == {}
    rig.feed(facts.RunOpened(rig.config))
    rig.feed(facts.RunEnded("time"))
    assert capacity(rig.state).wanted == {"a": 0}


def test_groups_refused_at_the_end_count_in_the_target() -> None:
    """A client numbers its groups: those that came too late must not be asked for again."""
    rig = Rig(group_size=2, queue_items=4)
    rig.submit_group("g0")
    rig.feed(facts.RunEnded("steps"))
    rig.submit_group("g1")
    rig.feed(facts.RunReopened(0))
    assert capacity(rig.state).target == {"a": 2 + 4}
