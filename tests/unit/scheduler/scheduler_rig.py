"""Drives the scheduler's pure core by hand: facts in, decisions out, and everything kept for a replay."""

from dataclasses import replace

from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, DropItem, TakeItem
from services.scheduler.domain.queue import advance
from services.scheduler.domain.state import State

CONFIG = RunConfig(
    domains=(("a", 1.0),),
    group_size=1,
    items_per_batch=2,
    queue_items=10,
    window_items=3,
    in_flight_items=10,
    lookahead_steps=100,
    deadline_s=60.0,
    max_staleness_steps=0,
    min_reward_spread=0.01,
)


class Rig:
    """A run. Opened and with policy 0 published, unless told otherwise."""

    def __init__(self, *, opened: bool = True, **changes: object) -> None:
        self.config = replace(CONFIG, **changes)
        self.state = State()
        self.now_s = 1000.0
        self.record: list[tuple[facts.Input, list[Decision]]] = []
        if opened:
            self.feed(facts.RunOpened(self.config))
            self.feed(facts.PolicyPublished(0))

    def feed(self, fact: facts.Fact) -> list[Decision]:
        """Take one fact, now."""
        taken = facts.Input(self.now_s, fact, event_id=f"test.stream/x@{len(self.record) + 1}")
        decided = list(advance(self.state, taken))
        self.record.append((taken, decided))
        self.check_books()
        return decided

    def check_books(self) -> None:
        """submitted = trained + dropped + in flight, where in flight is counted by itself."""
        tally = self.state.tally
        assert tally.submitted == tally.trained + sum(tally.dropped.values()) + len(self.state.members)

    def submit(self, *episode_ids: str, group: str = "", domain: str = "a") -> list[Decision]:
        """Submit training episodes, as one group when it is named."""
        return [d for e in episode_ids for d in self.feed(facts.Submitted(e, group, domain))]

    def submit_group(self, group: str, domain: str = "a") -> list[Decision]:
        """A whole group; its members are GROUP.0, GROUP.1, …"""
        return self.submit(*self.members(group), group=group, domain=domain)

    def members(self, group: str) -> list[str]:
        """Ids of a group's members."""
        return [f"{group}.{index}" for index in range(self.config.group_size)]

    def finish(self, episode_id: str, performance: float = 1.0, *, step: int = 0, tokens: int = 5) -> list[Decision]:
        """The agent's part ends, the trajectory is sealed and scored."""
        return [
            *self.feed(facts.Finished(episode_id, 1, 1.5)),
            *self.feed(facts.Sealed(episode_id, b"", tokens, step)),
            *self.feed(facts.Scored(episode_id, performance, "solved", b"")),
        ]

    def finish_group(self, group: str, *performance: float, step: int = 0) -> list[Decision]:
        """All members of a group, with these scores (default: first 1, others 0)."""
        scores = performance or (1.0, *[0.0] * (self.config.group_size - 1))
        members = self.members(group)
        return [d for e, p in zip(members, scores, strict=True) for d in self.finish(e, p, step=step)]

    def fail(self, episode_id: str) -> list[Decision]:
        """The infrastructure failed."""
        return self.feed(facts.Failed(episode_id, 4, cancelled=False))

    def step(self, step: int) -> list[Decision]:
        """Batch `step` was trained, and its policy is published."""
        return [*self.feed(facts.StepDone(step, ())), *self.feed(facts.PolicyPublished(step))]

    def wait(self, seconds: float) -> list[Decision]:
        """Time passes, and the clock ticks."""
        self.now_s += seconds
        return self.feed(facts.Ticked())


def taken(decisions: list[Decision]) -> list[int]:
    """Positions that were taken for training, in order."""
    return [d.position for d in decisions if isinstance(d, TakeItem)]


def admitted(decisions: list[Decision]) -> list[int]:
    """Positions that were admitted, in order."""
    return [d.position for d in decisions if isinstance(d, AdmitItem)]


def dropped(decisions: list[Decision]) -> list[tuple[int | None, str]]:
    """Positions and reasons of dropped items, in order."""
    return [(d.position, d.reason) for d in decisions if isinstance(d, DropItem)]


def batches(decisions: list[Decision]) -> list[int]:
    """Batches that were handed over."""
    return [d.batch for d in decisions if isinstance(d, CloseBatch)]
