"""How several runs share the fleet: weighted max-min shares of its episodes. Pure; refuses to know who really runs.

Decided here: a share follows from what the active runs are allowed to use (C * G) and from their weights, not from what
they happen to use at the moment: so it changes only when a run comes or goes, each change is one recorded input, and a
replay needs nothing else. A run that wants less than its share leaves the rest to the others; none gets less than one
group, so none starves, even where the fleet is too small for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.scheduler.domain.state import State


@dataclass(frozen=True, slots=True)
class Claim:
    """What a run may ask of the fleet: its weight, the size of its groups, and C * G."""

    weight: float
    group_size: int
    wanted_episodes: int


def claim_of(state: State) -> Claim | None:
    """What the run may ask for; None before it is open."""
    if state.plan is None:
        return None
    config = state.plan.config
    return Claim(config.fleet_weight, config.group_size, config.in_flight_items * config.group_size)


def fleet_shares(claims: Mapping[str, Claim], fleet_episodes: int) -> dict[str, int]:
    """Episodes of each run, whole groups of them; a run that gets all that it wants has 0, no bound."""
    open_runs = dict(claims)
    shares: dict[str, float] = {}
    left = float(fleet_episodes)
    while open_runs:
        weights = sum(claim.weight for claim in open_runs.values())
        part = {run_id: left * claim.weight / weights for run_id, claim in open_runs.items()}
        content = [run_id for run_id, claim in open_runs.items() if claim.wanted_episodes <= part[run_id]]
        if not content:
            shares |= part
            break
        for run_id in content:
            shares[run_id] = open_runs.pop(run_id).wanted_episodes
            left -= shares[run_id]
    return _whole_groups(claims, shares, fleet_episodes)


def _whole_groups(claims: Mapping[str, Claim], shares: Mapping[str, float], fleet_episodes: int) -> dict[str, int]:
    """Shares rounded down to groups, one at least; what that leaves goes to those who lost most by it."""
    given = {r: max(c.group_size, int(shares[r] / c.group_size + 1e-9) * c.group_size) for r, c in claims.items()}
    left = fleet_episodes - sum(given.values())
    for run_id in sorted(claims, key=lambda r: (given[r] - shares[r]) / claims[r].group_size):
        claim = claims[run_id]
        if claim.group_size <= left and given[run_id] < claim.wanted_episodes:
            given[run_id] += claim.group_size
            left -= claim.group_size
    return {r: 0 if given[r] >= c.wanted_episodes else given[r] for r, c in claims.items()}
