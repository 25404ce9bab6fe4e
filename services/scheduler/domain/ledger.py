"""The "why" ledger: which entries of a queue concern an episode, and what they say of it. Refuses to guess a
verdict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import (
    AdmitEvaluation,
    AdmitItem,
    CloseBatch,
    Decision,
    DropItem,
    PruneEpisodes,
    Revoke,
    SetWindow,
    TakeItem,
)
from services.scheduler.domain.members import Item, Member
from services.scheduler.domain.state import State


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an episode's ledger. Without an event id, the queue's own entry is the source."""

    time_s: float
    event_id: str
    text: str


def touched_by_fact(state: State, fact: facts.Fact) -> list[str]:
    """Episodes that a fact is about, asked before the state shows it."""
    match fact:
        case facts.StepDone(step) | facts.StepFailed(step):
            return _ids(state.batches.get(step, ()))
        case facts.TrajectoriesPruned(episode_ids):
            return list(episode_ids)
        case (
            facts.RunOpened()
            | facts.RunEnded()
            | facts.RunReopened()
            | facts.RunRemoved()
            | facts.PolicyPublished()
            | facts.FleetShared()
            | facts.PruningRequested()
            | facts.Ticked()
        ):
            return []
        case about:
            return [about.episode_id]


def touched_by_decision(state: State, decision: Decision) -> list[str]:
    """Episodes that a decision is about, asked before the state shows it."""
    match decision:
        case Revoke(episode_id) | AdmitEvaluation(episode_id):
            return [episode_id]
        case CloseBatch():
            return _ids(state.filling)
        case PruneEpisodes(episode_ids):
            return list(episode_ids)
        case SetWindow():
            return []
        case AdmitItem(group_id) | TakeItem(group_id) | DropItem(group_id):
            return _ids([state.item_of(group_id)])


def told_by_decision(state: State, decision: Decision) -> list[str]:
    """Episodes whose own public stream says of the decision, asked before the state shows it."""
    match decision:
        case Revoke(episode_id) | AdmitEvaluation(episode_id):
            return [episode_id]
        case AdmitItem(group_id):
            return [member.episode_id for member in state.items[group_id].members if not member.terminal]
        case _:
            return []


def _sealed(fact: facts.Sealed) -> str:
    turns = f"{fact.turn_count} turns in {fact.branch_count} branches, " if fact.turn_count else ""
    last = max(fact.first_policy_step, fact.last_policy_step)
    policies = f"policies {fact.first_policy_step} to {last}" if last > fact.first_policy_step else f"policy {last}"
    return f"sealed: {turns}{fact.sampled_tokens} sampled tokens of {policies}"


def _pruned(keep_steps: int) -> str:
    return f"trajectory pruned: closed {keep_steps} steps ago or longer"


def _ids(items: Iterable[Item]) -> list[str]:
    return [member.episode_id for item in items for member in item.members]


class Story:
    """One episode's lines and verdict, told entry by entry in the order of the queue."""

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id
        self._group_id = ""
        self._batch = 0
        self._member: Member | None = None
        self.lines: list[Line] = []
        self.verdict = "in_flight"

    def tell(self, taken: facts.Input, decisions: Sequence[Decision]) -> None:
        """The next entry that concerns the episode."""
        text = self._fact(taken.fact)
        if text:
            self.lines.append(Line(taken.occurred_at_s or taken.taken_at_s, taken.event_id, text))
        if isinstance(taken.fact, facts.Submitted) and text:
            self.lines.append(Line(taken.taken_at_s, "", self._queued(taken.fact)))
        for decision in decisions:
            text = self._decision(decision)
            if text:
                self.lines.append(Line(taken.taken_at_s, "", text))
        member = self._member
        if member is not None and member.submission.pinned_step is not None and member.terminal:
            self.verdict = "dropped" if member.ended_by else "evaluated"

    def _fact(self, fact: facts.Fact) -> str:
        match fact:
            case facts.Submitted() if fact.episode_id == self._episode_id:
                self._member = Member(fact, "")
                self._group_id = fact.group_id or fact.episode_id
                pinned = fact.pinned_step
                return f"submitted: domain {fact.domain}, " + (
                    f"group {self._group_id}" if pinned is None else f"evaluation of policy {pinned}"
                )
            case facts.StepDone(step, episodes) if step == self._batch:
                return self._trained(step, next((e for e in episodes if e.episode_id == self._episode_id), None))
            case facts.StepFailed(step, detail) if step == self._batch:
                self.verdict = "trained" if self.verdict == "trained" else "dropped"
                return f"training of batch {step} was refused: {detail}"
            case facts.TrajectoriesPruned(episode_ids, keep_steps) if self._episode_id in episode_ids:
                return _pruned(keep_steps)
            case facts.Started(episode_id) if episode_id == self._episode_id:
                return "started"
            case (
                facts.Cancelled()
                | facts.Sealed()
                | facts.Finished()
                | facts.Failed()
                | facts.Scored()
                | facts.ScoringFailed()
            ) if fact.episode_id == self._episode_id:
                return self._progress(fact)
            case _:
                return ""

    def _queued(self, fact: facts.Submitted) -> str:
        if fact.pinned_step is not None:
            return f"queued: evaluation, until policy {fact.pinned_step} is the newest"
        return f"queued: until group {self._group_id} is complete and has its turn"

    def _progress(self, fact: facts.Fact) -> str:
        member = self._member or Member(facts.Submitted(self._episode_id, "", ""), "")
        match fact:
            case facts.Sealed():
                member.sealed = fact
                return _sealed(fact)
            case facts.Finished(_, _, agent_wall_s):
                member.finished = fact
                return f"finished: {agent_wall_s:.2f} s of agent time"
            case facts.Scored(_, performance, failure_class):
                member.scored, member.ended_by = fact, member.ended_by.replace("grader_error", "")
                return f"scored: performance {performance:g}, {failure_class}"
            case facts.Failed(cancelled=cancelled, detail=detail):
                member.ended_by = member.ended_by or ("cancelled" if cancelled else "infra")
                return f"failed: {detail or member.ended_by}"
            case facts.ScoringFailed(_, detail):
                member.ended_by = member.ended_by or "grader_error"
                return f"could not be scored: {detail}"
            case facts.Cancelled(_, reason):
                member.ended_by = member.ended_by or "cancelled"
                return f"cancelled: {reason}"
            case _:
                return ""

    def _trained(self, step: int, report: facts.TrainedEpisode | None) -> str:
        if self.verdict != "in_flight":
            return ""
        if report is None:
            self.verdict = "trained"
            return f"step {step} trained it; the step's report could not be read"
        self.verdict = "trained" if report.trained else "dropped"
        if not report.trained:
            return f"step {step} did not train it: {report.why_not}"
        masked = f" ({report.masked_tokens} masked: too old)" if report.masked_tokens else ""
        return (
            f"step {step} trained {report.trained_tokens} tokens of it{masked}: reward {report.total_reward:g},"
            f" mean advantage {report.mean_advantage:+.4g}, weight {report.loss_weight:.4g} of the step"
        )

    def _decision(self, decision: Decision) -> str:
        match decision:
            case AdmitItem(group_id, position) if group_id == self._group_id:
                return f"admitted: group {group_id} has position {position}"
            case AdmitEvaluation(episode_id) if episode_id == self._episode_id:
                return "admitted: evaluation"
            case Revoke(episode_id, reason) if episode_id == self._episode_id:
                return self._revoked(reason)
            case TakeItem(group_id, position, batch, distance) if group_id == self._group_id:
                return self._taken(position, batch, distance)
            case DropItem(group_id, position, reason) if group_id == self._group_id:
                self.verdict = "dropped"
                where = "before it had a position" if position is None else f"at position {position}"
                return f"dropped with its group {where}: {reason}"
            case PruneEpisodes(episode_ids, keep_steps) if self._episode_id in episode_ids:
                return _pruned(keep_steps)
            case CloseBatch(batch) if batch == self._batch:
                return f"handed to the trainer in batch {batch}"
            case _:
                return ""

    def _revoked(self, reason: str) -> str:
        if self._member is not None:
            self._member.ended_by = self._member.ended_by or reason
        if reason in ("group_closed", "unknown_domain", "run_ended"):
            self.verdict = "dropped"
        return f"revoked: {reason}"

    def _taken(self, position: int, batch: int, distance: int) -> str:
        self._batch = batch
        why_not = self._member.why_not if self._member is not None else ""
        text = f"taken from position {position}, {distance} behind the head, into batch {batch}"
        if why_not:
            self.verdict = "dropped"
            return f"{text}; itself not eligible: {why_not}"
        return text
