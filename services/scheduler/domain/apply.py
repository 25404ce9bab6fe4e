"""What a fact changes in a run's state. Refuses to decide: it notes what has become due, and `decide` says it.

Decided here:
- A group closes when G members were submitted. Whoever comes later (or after the group was dropped, or after
  the end, or for a domain that the run has not) is revoked with its reason and counted as dropped. A training
  episode without a group is an item of its own.
- A cancelled member counts as submitted; a group all of whose members ended before admission is dropped without
  a position.
- Facts about an episode that is settled already stay in the record and change nothing.
"""

from collections import OrderedDict, deque

from services.scheduler.domain import facts
from services.scheduler.domain.auto_window import AutoWindow
from services.scheduler.domain.members import GRADER_ERROR, Item, Member, doom_of
from services.scheduler.domain.mix import Mix
from services.scheduler.domain.selection import make_selection
from services.scheduler.domain.settling import end_member, note_progress, settle_batch, tidy
from services.scheduler.domain.state import Plan, State


def apply_fact(state: State, taken: facts.Input) -> None:
    """Fold one input into the state. Raises ValueError when the run's numbers can't be."""
    state.now_s = max(state.now_s, taken.taken_at_s)
    state.stalls.moved_to(state.now_s, stalled=state.stalled)
    state.asked_keep_steps = None
    match taken.fact:
        case facts.Submitted() as submitted if state.plan is not None:
            _submitted(state, state.plan, submitted, taken.event_id)
        case facts.Submitted():
            state.early.append(taken)
        case facts.Cancelled() if state.plan is None:
            state.early.append(taken)
        case facts.StepDone(step, episodes):
            state.completed = max(state.completed, step)
            settle_batch(state, step, {report.episode_id: report for report in episodes}, "")
        case facts.StepFailed(step):
            settle_batch(state, step, {}, "step_failed")
        case facts.PolicyPublished(step):
            _published(state, step)
        case facts.RunOpened() | facts.RunEnded() | facts.RunReopened() | facts.RunRemoved() as fact:
            _run_changed(state, fact)
        case facts.FleetShared(episodes):
            state.fleet_episodes = episodes
        case facts.PruningRequested() | facts.TrajectoriesPruned() as fact:
            _pruning_changed(state, fact)
        case facts.Ticked() | facts.Started():
            pass
        case fact:
            _episode_changed(state, fact)
    tidy(state)


RunFact = facts.RunOpened | facts.RunEnded | facts.RunReopened | facts.RunRemoved
EpisodeFact = facts.Cancelled | facts.Sealed | facts.Finished | facts.Failed | facts.Scored | facts.ScoringFailed


def _run_changed(state: State, fact: RunFact) -> None:
    match fact:
        case facts.RunOpened(config):
            if state.plan is not None:
                return
            auto = AutoWindow(config) if config.window_auto else None
            state.plan = Plan(config, Mix(config.domains, config.owed_items), make_selection(config), auto)
            state.window_items = config.reach_items
            state.end_steps = config.end_steps
            state.waiting = {name: OrderedDict[str, Item]() for name, _ in config.domains}
            early, state.early = state.early, []
            for taken in early:
                apply_fact(state, taken)
        case facts.RunReopened(end_steps):
            state.ended, state.end_steps = False, end_steps
        case facts.RunEnded():
            _ended(state)
        case facts.RunRemoved():
            state.removed = True
            _ended(state)
            for member in state.evaluations.values():
                state.to_revoke.append((member.episode_id, "run_removed"))


def _pruning_changed(state: State, fact: facts.PruningRequested | facts.TrajectoriesPruned) -> None:
    match fact:
        case facts.PruningRequested(keep_steps):
            state.asked_keep_steps = keep_steps
        case facts.TrajectoriesPruned(episode_ids):
            gone = set(episode_ids)
            kept = [closed for closed in state.closed if closed[1] not in gone]
            state.tally.pruned += len(state.closed) - len(kept)
            state.closed = deque(kept)


def _ended(state: State) -> None:
    if state.ended:
        return
    state.ended = True
    for member in state.members.values():
        if member.admission_events and not member.terminal:
            state.to_revoke.append((member.episode_id, "run_ended"))
    state.to_drop.extend((item.group_id, "run_ended") for item in state.filling)
    state.to_drop.extend((group_id, "run_ended") for group_id in state.items)


def _submitted(state: State, plan: Plan, submitted: facts.Submitted, event_id: str) -> None:
    if state.live(submitted.episode_id) is not None:
        return
    member = Member(submitted, event_id)
    if submitted.pinned_step is not None:
        _evaluation_submitted(state, member, submitted.pinned_step)
        return
    state.tally.submitted += 1
    state.members[submitted.episode_id] = member
    group_id = submitted.group_id or submitted.episode_id
    refusal = _refusal(state, group_id, submitted.domain)
    if refusal:
        if refusal == "run_ended" and group_id not in state.closed_groups:
            _new_group(state, group_id, submitted.domain)
            state.closed_groups.add(group_id)
        state.to_revoke.append((submitted.episode_id, refusal))
        return
    item = state.items.get(group_id)
    if item is None:
        _new_group(state, group_id, submitted.domain)
        size = plan.config.group_size if submitted.group_id else 1
        item = state.items[group_id] = Item(group_id, submitted.domain, size)
    member.item = item
    item.members.append(member)
    if item.closed:
        state.closed_groups.add(group_id)
        if item.all_terminal:
            state.to_drop.append((group_id, doom_of(item, plan.config)))
        else:
            state.waiting[item.domain][group_id] = item


def _new_group(state: State, group_id: str, domain: str) -> None:
    """Clients number their groups by what was seen: one that came too late counts as well."""
    if group_id not in state.items:
        seen = state.tally.groups_by_domain
        seen[domain] = seen.get(domain, 0) + 1


def _refusal(state: State, group_id: str, domain: str) -> str:
    if state.ended:
        return "run_ended"
    if group_id in state.closed_groups:
        return "group_closed"
    return "" if domain in state.waiting else "unknown_domain"


def _evaluation_submitted(state: State, member: Member, pinned_step: int) -> None:
    state.tally.evaluations += 1
    state.evaluations[member.episode_id] = member
    state.evaluations_waiting.setdefault(pinned_step, OrderedDict[str, Member]())[member.episode_id] = member
    if state.removed:
        state.to_revoke.append((member.episode_id, "run_removed"))
    elif pinned_step < state.published:
        state.to_revoke.append((member.episode_id, "policy_replaced"))


def _published(state: State, step: int) -> None:
    if step <= state.published:
        return
    state.published = step
    for member in state.evaluations.values():
        pinned_step = member.submission.pinned_step
        if pinned_step is not None and pinned_step < step:
            state.to_revoke.append((member.episode_id, "policy_replaced"))


def _episode_changed(state: State, fact: EpisodeFact) -> None:
    member = state.live(fact.episode_id)
    if member is None:
        return
    if isinstance(fact, facts.Scored) and member.ended_by == GRADER_ERROR:
        _rescored(state, member, fact)
        return
    was_terminal = member.terminal
    match fact:
        case facts.Sealed():
            member.sealed = fact
        case facts.Finished():
            member.finished = fact
        case facts.Scored():
            member.scored = fact
        case facts.ScoringFailed():
            member.ended_by = member.ended_by or ("" if member.scored else GRADER_ERROR)
        case facts.Failed(cancelled=cancelled):
            member.ended_by = member.ended_by or ("cancelled" if cancelled else "infra")
        case facts.Cancelled():
            if member.admission_events and not was_terminal:
                state.to_revoke.append((member.episode_id, "cancelled"))
            elif not was_terminal:
                end_member(state, member, "cancelled")
            return
    if not was_terminal and member.terminal:
        note_progress(state, member)


def _rescored(state: State, member: Member, scored: facts.Scored) -> None:
    """A grader error is re-scorable while its item is not consumed; the item's fate is then weighed again."""
    if state.plan is None or member.finished is None or member.sealed is None:
        return
    item = member.item
    if item is None or item.group_id not in state.items:
        return
    member.ended_by, member.scored = "", scored
    if item.finished:
        was_doomed = bool(item.doom)
        item.doom = doom_of(item, state.plan.config)
        state.doomed += bool(item.doom) - was_doomed
