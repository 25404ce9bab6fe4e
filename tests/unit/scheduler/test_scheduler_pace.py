"""Slow domains are paced, not dropped: of what is consumed they have their share, within two points, whatever is slow,
whoever finishes first, and also where many groups are dropped for want of spread.
"""

import math
from collections.abc import Iterable
from random import Random

import pytest
from scheduler_rig import CONFIG

from services.scheduler.domain import facts
from services.scheduler.domain.books import domain_books
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import Planned, what_if

START_US = 1_000_000_000


class Domains:
    """A platform on which each domain has its own mean duration, heavy-tailed, and its own share of dull groups."""

    def __init__(self, config: RunConfig, mean_s: dict[str, float], dull: dict[str, float], seed: int) -> None:
        self._config, self._mean_s, self._dull = config, mean_s, dull
        self._chance = Random(seed)
        self._made = dict.fromkeys(mean_s, 0)

    def opening(self) -> Iterable[Planned]:
        submissions = [fact for name in self._mean_s for _ in range(60) for fact in self._group(name)]
        return [(START_US, (facts.RunOpened(self._config), facts.PolicyPublished(0), *submissions))]

    def _group(self, domain: str) -> list[facts.Fact]:
        self._made[domain] += 1
        group = f"{domain}{self._made[domain]}"
        return [facts.Submitted(f"{group}.{index}", group, domain) for index in range(self._config.group_size)]

    def follows(self, state: State, decision: Decision, now_us: int) -> Iterable[Planned]:
        match decision:
            case AdmitItem(group_id):
                item = state.items[group_id]
                dull = self._chance.random() < self._dull.get(item.domain, 0.0)
                yield now_us, tuple(self._group(item.domain))
                for place, member in enumerate(item.members):
                    lasts_s = self._mean_s[item.domain] * math.exp(self._chance.gauss(-0.5, 1.0))
                    score = 0.0 if dull or place else 1.0
                    ended = (
                        facts.Finished(member.episode_id, 1, lasts_s),
                        facts.Sealed(member.episode_id, b"", 5, state.published),
                        facts.Scored(member.episode_id, score, "solved", b""),
                    )
                    yield now_us + round(lasts_s * 1e6), ended
            case CloseBatch(batch):
                yield now_us + 500_000, (facts.StepDone(batch, ()), facts.PolicyPublished(batch))
            case _:
                pass


NUMBERS = {
    "group_size": 2,
    "items_per_batch": 8,
    "queue_items": 32,
    "window_items": 10,
    "in_flight_items": 16,
    "lookahead_steps": 3,
    "owed_items": 32,
    "deadline_s": 100_000.0,
}


def config(domains: tuple[tuple[str, float], ...], **changes: object) -> RunConfig:
    known = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    return RunConfig(**{**known, **NUMBERS, "domains": domains, **changes})


def run(numbers: RunConfig, mean_s: dict[str, float], dull: dict[str, float], batches: int) -> tuple[State, float]:
    """The state after so many batches, and the largest error of a domain's share over the second half of the run."""
    state, worst = State(), 0.0
    for _ in what_if(Domains(numbers, mean_s, dull, seed=5), state):
        if state.handed >= batches // 2:
            mix = state.tally.achieved_mix()
            worst = max(worst, *(abs(mix.get(name, 0.0) - share) for name, share in numbers.shares.items()))
        if state.handed >= batches:
            return state, worst
    raise AssertionError(f"the run stopped at batch {state.handed}")


@pytest.mark.parametrize("mode", ["rolling", "cohort"])
@pytest.mark.parametrize("policy", ["windowed_fifo", "strict_fifo"])
@pytest.mark.parametrize("slower", [10.0, 100.0])
def test_a_slow_domain_keeps_its_share_of_what_is_consumed(policy: str, mode: str, slower: float) -> None:
    numbers = config((("fast", 3.0), ("slow", 1.0)), selection=policy, mode=mode)
    state, worst = run(numbers, {"fast": 1.0, "slow": slower}, {}, batches=120)
    assert worst < 0.02, state.tally.achieved_mix()
    assert state.tally.dropped == {}


def test_groups_without_spread_count_as_consumed_and_are_reported_beside() -> None:
    """Half of the slow domain's groups teach nothing: they are part of its share, and each domain's are counted."""
    numbers = config((("qa", 1.0), ("code", 1.0), ("maths", 2.0)))
    dull = {"code": 0.5, "qa": 0.1}
    state, worst = run(numbers, {"qa": 1.0, "code": 30.0, "maths": 3.0}, dull, batches=120)
    assert worst < 0.02
    books = domain_books(state)
    assert abs(books["code"].consumed_share - 0.25) < 0.02
    assert abs(books["code"].dropped_items["no_spread"] / books["code"].consumed_items - 0.5) < 0.1
    assert books["maths"].dropped_items == {}
    for book in books.values():
        assert book.consumed_items == book.taken_items + sum(book.dropped_items.values())
    assert sum(book.taken_items for book in books.values()) == 120 * 8 + len(state.filling)


def test_greedy_keeps_the_share_in_the_long_run_only() -> None:
    """The contrast: what a rolling queue admits it consumes in the end, but greedy is behind by what is in flight."""
    domains = (("fast", 3.0), ("slow", 1.0))
    early = {}
    for policy in ("windowed_fifo", "greedy"):
        state, _ = run(config(domains, selection=policy), {"fast": 1.0, "slow": 100.0}, {}, batches=6)
        early[policy] = abs(state.tally.achieved_mix().get("slow", 0.0) - 0.25)
    assert early["greedy"] > 2 * early["windowed_fifo"]
    state, worst = run(config(domains, selection="greedy"), {"fast": 1.0, "slow": 100.0}, {}, batches=240)
    assert worst < 0.02
