"""How runs share the fleet: shares worked by hand, and three runs side by side of which none starves."""

import pytest
from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.fleet import Claim, claim_of, fleet_shares
from services.scheduler.domain.queue import disagreement


@pytest.mark.parametrize(
    ("claims", "fleet", "shares"),
    [
        # Alone, and wanting no more than there is: no bound.
        ({"a": Claim(1.0, 4, 40)}, 40, {"a": 0}),
        ({"a": Claim(1.0, 4, 40)}, 20, {"a": 20}),
        ({"a": Claim(1.0, 4, 40), "b": Claim(1.0, 4, 40)}, 40, {"a": 20, "b": 20}),
        # 10 and 30: in groups of four 8 and 28; the four that are left go to the first of two who lost two each.
        ({"a": Claim(1.0, 4, 40), "b": Claim(3.0, 4, 40)}, 40, {"a": 12, "b": 28}),
        # b wants 8 only: its 12 others go to a and c by 1 to 3: 8 and 24.
        ({"a": Claim(1.0, 8, 64), "b": Claim(2.0, 8, 8), "c": Claim(3.0, 8, 64)}, 40, {"a": 8, "b": 0, "c": 24}),
        # Too small a fleet: nobody gets less than a group.
        ({"a": Claim(1.0, 4, 40), "b": Claim(9.0, 4, 40), "c": Claim(1.0, 4, 40)}, 8, {"a": 4, "b": 4, "c": 4}),
        ({}, 8, {}),
    ],
)
def test_weighted_max_min_shares(claims: dict[str, Claim], fleet: int, shares: dict[str, int]) -> None:
    assert fleet_shares(claims, fleet) == shares


def test_a_share_bounds_admission_and_is_part_of_the_record() -> None:
    rig = Rig(group_size=2, in_flight_items=8)
    rig.feed(facts.FleetShared(5))
    for index in range(8):
        rig.submit_group(f"g{index}")
    assert rig.state.in_flight == 2, "five episodes hold two groups of two"
    rig.feed(facts.FleetShared(0))
    assert rig.state.in_flight == 8, "no bound but its own"
    rig.feed(facts.FleetShared(4))
    rig.finish_group("g0")
    assert rig.state.in_flight == 7, "what runs goes on; nobody new is admitted before the share is kept"
    assert disagreement(rig.record) == ""


def test_three_runs_get_their_shares_and_none_starves() -> None:
    """Equal durations: in each second every run's episodes end and the next come; consumption follows the weights."""
    runs = {
        name: Rig(group_size=2, in_flight_items=10, fleet_weight=weight, lookahead_steps=1000, window_items=10)
        for name, weight in (("a", 1.0), ("b", 2.0), ("c", 1.0))
    }
    claims = {name: claim for name, rig in runs.items() if (claim := claim_of(rig.state)) is not None}
    assert claims["b"] == Claim(2.0, 2, 20)
    for name, share in fleet_shares(claims, 16).items():
        runs[name].feed(facts.FleetShared(share))
    for second in range(30):
        for name, rig in runs.items():
            for index in range(12):
                rig.submit_group(f"{name}{second}-{index}")
            running = [item.group_id for item in rig.state.queue.values() if not item.finished]
            assert 2 * len(running) <= rig.state.fleet_episodes
            for group in running:
                rig.finish_group(group)
    taken = {name: rig.state.tally.taken_items for name, rig in runs.items()}
    assert taken == {"a": 60, "b": 120, "c": 60}, "16 episodes are 8 groups: 2, 4 and 2 a second"
