"""A run's record as a platform for `what_if`: its episodes, steps and client as they were, re-timed under other rules.

Decided here:
- An episode takes from its admission as long as it took, whenever that is, and ends as it ended; its tokens come from
  as many policies before or after the newest one as they did. A step takes as long as the step of that number took, or
  the median step where the record has none. Evaluation comes as long after its policy as it came.
- The client keeps what `capacity` asks for: a queue's worth of each domain waits, and one group follows for each that
  is admitted, in the order of the record.
- A group that was never admitted, or that the end of the record cut off, has no known duration: it is left out, and
  counted. An episode that passed its deadline runs until its deadline strikes again.
Refuses to guess what has no trace in the record.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.decisions import AdmitEvaluation, AdmitItem, CloseBatch, Decision, DropItem, Revoke
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import Planned

Record = Iterable[tuple[facts.Input, Sequence[Decision]]]
_ENDS = (facts.Failed, facts.ScoringFailed, facts.Cancelled)
_PARTS = {facts.Finished, facts.Sealed, facts.Scored}


def micros(seconds: float) -> int:
    """Whole microseconds, the clock's own grain."""
    return round(seconds * 1_000_000)


@dataclass(slots=True)
class Life:
    """An episode in the record: when it was admitted, the newest policy then, and what was heard of it after that."""

    submitted: facts.Submitted
    submitted_us: int
    # Its place among the inputs of the record.
    index: int
    admitted_us: int | None = None
    admitted_step: int = 0
    revoked_for: str = ""
    early: list[facts.Fact] = field(default_factory=list[facts.Fact])
    heard: list[tuple[int, facts.Fact]] = field(default_factory=list[tuple[int, facts.Fact]])

    @property
    def known(self) -> bool:
        """Whether the record says how it ended; who missed the deadline will miss it again, or have ended before."""
        if self.early:
            return True
        if self.admitted_us is None or self.revoked_for in ("run_ended", "run_removed"):
            return False
        told = {type(fact) for _, fact in self.heard}
        return self.revoked_for == "deadline" or told >= _PARTS or any(kind in told for kind in _ENDS)


class Hindsight:
    """Reads a record once. Raises ValueError when it does not begin with a run."""

    def __init__(self, record: Record) -> None:
        self.config: RunConfig | None = None
        self.opened_us = 0
        self.first_policy_index = 2**63
        self._lives: dict[str, Life] = {}
        self._groups: dict[str, list[Life]] = {}
        self._published_us: dict[int, int] = {}
        self._closed_us: dict[int, int] = {}
        self._done_us: dict[int, int] = {}
        self._fleet: list[tuple[int, facts.FleetShared]] = []
        for index, (taken, decisions) in enumerate(record):
            now_us = micros(taken.taken_at_s)
            self._hear(taken.fact, now_us, index)
            for decision in decisions:
                self._decided(decision, now_us)
        if self.config is None:
            raise ValueError("record: given one without the run's opening; allowed a run's whole queue")

    def _hear(self, fact: facts.Fact, now_us: int, index: int) -> None:
        match fact:
            case facts.RunOpened(config) if self.config is None:
                self.config, self.opened_us = config, now_us
            case facts.PolicyPublished(step):
                self._published_us.setdefault(step, now_us)
                self.first_policy_index = min(self.first_policy_index, index)
            case facts.StepDone(step) | facts.StepFailed(step):
                self._done_us.setdefault(step, now_us)
            case facts.FleetShared():
                self._fleet.append((now_us, fact))
            case facts.Submitted() if fact.episode_id not in self._lives:
                life = self._lives[fact.episode_id] = Life(fact, now_us, index)
                if fact.pinned_step is None:
                    self._groups.setdefault(fact.group_id or fact.episode_id, []).append(life)
            case (
                facts.Cancelled()
                | facts.Sealed()
                | facts.Started()
                | facts.Finished()
                | facts.Failed()
                | facts.Scored()
                | facts.ScoringFailed()
            ) if fact.episode_id in self._lives:
                life = self._lives[fact.episode_id]
                if life.admitted_us is not None:
                    life.heard.append((now_us - life.admitted_us, fact))
                elif isinstance(fact, facts.Cancelled):
                    life.early.append(fact)
            case _:
                pass

    def _decided(self, decision: Decision, now_us: int) -> None:
        match decision:
            case AdmitItem(group_id):
                for life in self._groups.get(group_id, ()):
                    self._admitted(life, now_us)
            case AdmitEvaluation(episode_id):
                self._admitted(self._lives[episode_id], now_us)
            case Revoke(episode_id, reason) if episode_id in self._lives:
                self._lives[episode_id].revoked_for = reason
            case CloseBatch(batch):
                self._closed_us[batch] = now_us
            case _:
                pass

    def _admitted(self, life: Life, now_us: int) -> None:
        life.admitted_us = now_us
        life.admitted_step = max(self._published_us, default=0)

    def step_us(self, batch: int) -> int | None:
        """How long the step of that number took: from its batch, or from the step before it, to its end."""
        done_us, closed_us = self._done_us.get(batch), self._closed_us.get(batch)
        if done_us is None or closed_us is None:
            return None
        return max(0, done_us - max(closed_us, self._done_us.get(batch - 1, 0)))

    @property
    def batches(self) -> int:
        """Batches that were handed over."""
        return len(self._closed_us)

    def platform(self, config: RunConfig) -> "Recorded":
        """The same episodes and steps, for a run with other numbers."""
        size = self.config.group_size if self.config else 1
        known: list[list[Life]] = []
        for lives in self._groups.values():
            whole = len(lives) >= (size if lives[0].submitted.group_id else 1)
            if whole and all(life.known for life in lives):
                known.append(lives)
        evaluations = [
            life for life in self._lives.values() if life.submitted.pinned_step is not None and life.admitted_us
        ]
        return Recorded(self, config, known, evaluations)

    @property
    def groups(self) -> int:
        """Groups in the record."""
        return len(self._groups)

    @property
    def fleet(self) -> Sequence[tuple[int, facts.FleetShared]]:
        """Shares of the fleet, and when they were told."""
        return self._fleet

    def published_us(self, step: int) -> int | None:
        """When a policy was heard of."""
        return self._published_us.get(step)

    def done_us(self, step: int) -> int | None:
        """When a step was heard of."""
        return self._done_us.get(step)


class Recorded:
    """Platform of `what_if`: see the module. `groups` have known endings, in the order of their submission."""

    def __init__(
        self, record: Hindsight, config: RunConfig, groups: Sequence[list[Life]], evaluations: Sequence[Life]
    ) -> None:
        self._record, self._config = record, config
        self.used_groups = len(groups)
        self._waiting: dict[str, list[list[Life]]] = {}
        for lives in reversed(groups):
            self._waiting.setdefault(lives[0].submitted.domain, []).append(lives)
        self._lives = {life.submitted.episode_id: life for lives in groups for life in lives}
        self._lives |= {life.submitted.episode_id: life for life in evaluations}
        self._evaluations = evaluations
        known = [us for batch in range(1, record.batches + 1) if (us := record.step_us(batch)) is not None]
        self._median_step_us = round(median(known)) if known else 0
        self._done_us = 0

    def opening(self) -> Iterator[Planned]:
        record, start_us = self._record, self._record.opened_us
        yield start_us, (facts.RunOpened(self._config),)
        policy: list[tuple[int, int, tuple[facts.Fact, ...]]] = [
            (record.published_us(0) or start_us, record.first_policy_index, (facts.PolicyPublished(0),))
        ]
        for at_us, _, arriving in sorted([*policy, *self._first_groups()], key=lambda planned: planned[:2]):
            yield max(start_us, at_us), arriving
        yield from self._evaluations_of(0, start_us, start_us)
        for at_us, shared in record.fleet:
            yield max(start_us, at_us), (shared,)

    def follows(self, state: State, decision: Decision, now_us: int) -> Iterable[Planned]:
        match decision:
            case AdmitItem(group_id):
                item = state.items[group_id]
                for member in item.members:
                    yield from self._endings(member.episode_id, state.published, now_us)
                yield from self._next_group(item.domain, now_us)
            case AdmitEvaluation(episode_id):
                yield from self._endings(episode_id, state.published, now_us)
            case DropItem(group_id, None):
                yield from self._next_group(state.item_of(group_id).domain, now_us)
            case CloseBatch(batch):
                yield from self._training(batch, now_us)
            case _:
                pass

    def _first_groups(self) -> Iterator[tuple[int, int, tuple[facts.Fact, ...]]]:
        """A queue's worth of each domain, when it came and in which order."""
        for domain, share in self._config.shares.items():
            wanted = max(1, math.ceil(self._config.queue_items * share - 1e-9)) if share > 0 else 0
            for _ in range(min(wanted, len(self._waiting.get(domain, ())))):
                lives = self._waiting[domain].pop()
                early = [fact for life in lives for fact in life.early]
                yield lives[-1].submitted_us, lives[-1].index, (*[life.submitted for life in lives], *early)

    def _next_group(self, domain: str, now_us: int) -> Iterator[Planned]:
        waiting = self._waiting.get(domain)
        if waiting:
            lives = waiting.pop()
            yield now_us, tuple(life.submitted for life in lives)
            early = tuple(fact for life in lives for fact in life.early)
            if early:
                yield now_us, early

    def _endings(self, episode_id: str, published: int, now_us: int) -> Iterator[Planned]:
        life = self._lives[episode_id]
        moved = published - life.admitted_step
        for after_us, fact in life.heard:
            if isinstance(fact, facts.Sealed) and life.submitted.pinned_step is None:
                first, last = fact.first_policy_step, fact.last_policy_step
                fact = replace(
                    fact, first_policy_step=max(0, first + moved), last_policy_step=max(0, last + moved) if last else 0
                )
            yield now_us + after_us, (fact,)

    def _training(self, batch: int, now_us: int) -> Iterator[Planned]:
        took_us = self._record.step_us(batch)
        begun_us = max(now_us, self._done_us)
        self._done_us = begun_us + (self._median_step_us if took_us is None else took_us)
        yield self._done_us, (facts.StepDone(batch, ()),)
        done_us, published_us = self._record.done_us(batch), self._record.published_us(batch)
        late_us = max(0, published_us - done_us) if done_us is not None and published_us is not None else 0
        yield self._done_us + late_us, (facts.PolicyPublished(batch),)
        if published_us is not None:
            yield from self._evaluations_of(batch, published_us, self._done_us + late_us)

    def _evaluations_of(self, step: int, recorded_us: int, now_us: int) -> Iterator[Planned]:
        for life in self._evaluations:
            if life.submitted.pinned_step == step:
                yield now_us + max(0, life.submitted_us - recorded_us), (life.submitted,)
