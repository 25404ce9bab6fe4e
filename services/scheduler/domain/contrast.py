"""Two runs side by side: settings, totals, curves, and the first place where their queues part. Pure.

Group ids begin with their run's id, which says nothing about what was decided: it is left out in comparisons.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, DropItem, SetWindow, TakeItem
from services.scheduler.domain.outcome import Observer
from services.scheduler.domain.state import State


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a run: means over the episodes that it trained; None where the record does not say."""

    step: int
    reward_mean: float | None
    performance_mean: float | None
    trained_tokens: int
    items: int
    window_items: int


@dataclass(slots=True)
class Portrait:
    """A run as its record shows it."""

    run_id: str
    settings: dict[str, object] = field(default_factory=dict[str, object])
    curve: list[Point] = field(default_factory=list[Point])
    decided: list[str] = field(default_factory=list[str])
    state: State = field(default_factory=State)

    def totals(self) -> dict[str, object]:
        """The books and the figures of the whole run."""
        tally, state = self.state.tally, self.state
        return {
            "submitted": tally.submitted,
            "trained": tally.trained,
            "dropped": dict(sorted(tally.dropped.items())),
            "in_flight": len(state.members),
            "evaluations": tally.evaluations,
            "pruned": tally.pruned,
            "batches": state.handed,
            "steps": state.completed,
            "distance_mean": tally.distance_mean,
            "distance_max": tally.distance_max,
            "lag_items_mean": tally.lag_mean,
            "lag_items_max": tally.lag_max,
            "staleness_mean_steps": tally.staleness_mean,
            "staleness_max_steps": tally.staleness_max,
            "stall_share": state.stalls.measured_share,
            "achieved_mix": tally.achieved_mix(),
        }


class Painter:
    """Makes a portrait, entry by entry."""

    def __init__(self, run_id: str) -> None:
        self.portrait = Portrait(run_id)
        self._observer = Observer(2**63)
        self._batches: dict[int, tuple[int, list[float]]] = {}

    def see(self, taken: facts.Input, decisions: Sequence[Decision]) -> None:
        """The next entry."""
        fact, state = taken.fact, self._observer.state
        if isinstance(fact, facts.RunOpened) and state.plan is None:
            self.portrait.settings = asdict(fact.config)
        if isinstance(fact, facts.StepDone):
            self.portrait.curve.append(self._point(fact))
        for decision in decisions:
            said = spoken(decision, self.portrait.run_id)
            if said:
                self.portrait.decided.append(said)
        self._observer.watch(taken, self._with_scores(decisions))
        self.portrait.state = state

    def _with_scores(self, decisions: Iterable[Decision]) -> Iterable[Decision]:
        for decision in decisions:
            if isinstance(decision, CloseBatch):
                filling = self._observer.state.filling
                scores = [m.scored.performance for item in filling for m in item.eligible if m.scored is not None]
                self._batches[decision.batch] = len(filling), scores
            yield decision

    def _point(self, fact: facts.StepDone) -> Point:
        trained = [episode for episode in fact.episodes if episode.trained]
        items, scores = self._batches.get(fact.step, (0, []))
        return Point(
            step=fact.step,
            reward_mean=fmean(episode.total_reward for episode in trained) if trained else None,
            performance_mean=fmean(scores) if scores else None,
            trained_tokens=sum(episode.trained_tokens for episode in trained),
            items=items,
            window_items=self._observer.state.window_items,
        )


def spoken(decision: Decision, run_id: str) -> str:
    """A decision about the queue in words that are the same in two runs that decide the same; empty for others."""
    match decision:
        case AdmitItem(group_id, position):
            return f"position {position} is {group_id.removeprefix(run_id + '/')}"
        case TakeItem(group_id, position, batch, distance):
            name = group_id.removeprefix(run_id + "/")
            return f"{name} goes from position {position}, {distance} behind the head, into batch {batch}"
        case DropItem(group_id, int(position), reason):
            return f"{group_id.removeprefix(run_id + '/')} is dropped at position {position}: {reason}"
        case SetWindow(window_items):
            return f"the window is {window_items}"
        case _:
            return ""


def first_divergence(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, str, str] | None:
    """Number (from 0) and words of the first decisions that differ; None when one record is the other's beginning."""
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return index, one, other
    return None


def changed(ours: dict[str, object], theirs: dict[str, object]) -> dict[str, tuple[object, object]]:
    """Settings that differ, by name; one that only one run has is None in the other."""
    names = [*ours, *(name for name in theirs if name not in ours)]
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}
