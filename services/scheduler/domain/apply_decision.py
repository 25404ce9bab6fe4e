"""What a decision changes in a run's state; the same for one just made and for one read back. Refuses to decide."""

from heapq import heappush

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
from services.scheduler.domain.settling import close, end_member, settle_member, tidy
from services.scheduler.domain.state import Passed, Plan, State
from services.scheduler.domain.tally import TAKEN


def apply_decision(state: State, decision: Decision) -> None:
    """Fold one decision into the state. Raises ValueError before the run is opened."""
    if state.plan is None:
        raise ValueError(f"{decision}: given before the run was opened; allowed after")
    match decision:
        case AdmitItem():
            _admit_item(state, state.plan, decision)
        case AdmitEvaluation(episode_id, deadline_at_s):
            _admit_evaluation(state, state.evaluations[episode_id], deadline_at_s)
        case Revoke(episode_id, reason):
            _revoke(state, episode_id, reason)
        case TakeItem():
            _take(state, state.plan, decision)
        case DropItem():
            _drop(state, state.plan, decision)
        case CloseBatch(batch):
            state.batches[batch], state.filling = state.filling, []
            state.handed = batch
            state.batch_events += 1
            if state.plan.auto is not None:
                state.plan.auto.batch_closed()
        case SetWindow(window_items):
            state.window_items = window_items
            state.plan.selection.resize(window_items)
        case PruneEpisodes(episode_ids):
            # The oldest, since that is what was decided.
            for _ in episode_ids:
                state.closed.popleft()
            state.tally.pruned += len(episode_ids)
            state.retention_events += 1
    tidy(state)


def _run_until(state: State, member: Member, deadline_at_s: float) -> None:
    member.admitted = True
    member.admission_events += 1
    heappush(state.deadlines, (deadline_at_s, member.episode_id))


def _admit_item(state: State, plan: Plan, decision: AdmitItem) -> None:
    item = state.items[decision.group_id]
    plan.mix.took(item.domain, state.waiting_domains())
    del state.waiting[item.domain][item.group_id]
    item.position, item.admitted_at_s = decision.position, state.now_s
    item.entered_at = state.tally.consumed_items
    state.queue[decision.position] = item
    state.tail = decision.position + 1
    state.in_flight += 1
    state.stalls.running = True
    for member in item.members:
        if not member.terminal:
            _run_until(state, member, decision.deadline_at_s)


def _admit_evaluation(state: State, member: Member, deadline_at_s: float) -> None:
    pinned_step = member.submission.pinned_step or 0
    waiting = state.evaluations_waiting[pinned_step]
    del waiting[member.episode_id]
    if not waiting:
        del state.evaluations_waiting[pinned_step]
    state.evaluations_in_flight += 1
    _run_until(state, member, deadline_at_s)


def _revoke(state: State, episode_id: str, reason: str) -> None:
    if state.to_revoke and state.to_revoke[0][0] == episode_id:
        state.to_revoke.popleft()
    member = state.live(episode_id)
    if member is not None:
        member.admission_events += 1
        end_member(state, member, reason)


def _take(state: State, plan: Plan, decision: TakeItem) -> None:
    item = _leave_queue(state, plan, decision.position, "")
    item.distance = decision.distance
    state.filling.append(item)
    eligible = item.eligible
    staleness_steps = [decision.batch - 1 - member.first_policy_step for member in eligible]
    state.tally.take(decision.distance, staleness_steps, sum(member.partial for member in eligible))
    for member in item.members:
        if member.why_not:
            settle_member(state, member, member.why_not)


def _drop(state: State, plan: Plan, decision: DropItem) -> None:
    if state.to_drop and state.to_drop[0][0] == decision.group_id:
        state.to_drop.popleft()
    state.batch_events += 1
    if decision.position is not None and decision.position in state.queue:
        item = _leave_queue(state, plan, decision.position, decision.reason)
    else:
        item = state.item_of(decision.group_id)
        if state.items.pop(item.group_id, None) is None:
            state.filling.remove(item)
        state.waiting[item.domain].pop(item.group_id, None)
    state.closed_groups.add(item.group_id)
    for member in item.members:
        settle_member(state, member, member.ended_by or decision.reason)
        close(state, member)


def _leave_queue(state: State, plan: Plan, position: int, dropped_for: str) -> Item:
    """Consume a position: the head moves on only from the head, and then over everything consumed behind it."""
    item = state.queue.pop(position)
    del state.items[item.group_id]
    plan.selection.consumed(position)
    if item.finished:
        state.doomed -= bool(item.doom)
    else:
        state.in_flight -= 1
    state.tally.left(item.entered_at)
    if not state.ended:
        state.tally.consume(item.domain, dropped_for or TAKEN)
    state.passed[position] = Passed(item.group_id, item.domain, len(item.members), bool(dropped_for))
    while state.head in state.passed:
        del state.passed[state.head]
        state.head += 1
    return item
