"""How episodes and items come to their end: the parts that facts and decisions share. Refuses to decide."""

from heapq import heappop

from services.scheduler.domain.facts import TrainedEpisode
from services.scheduler.domain.members import Item, Member, doom_of
from services.scheduler.domain.state import State


def end_member(state: State, member: Member, reason: str) -> None:
    """A member that was not terminal will never be trained."""
    member.ended_by = reason
    note_progress(state, member)


def note_progress(state: State, member: Member) -> None:
    """A member has just become terminal: its item may be finished with it."""
    if member.submission.pinned_step is not None:
        _settle_evaluation(state, member, member.submission.pinned_step)
        return
    item = member.item
    if item is None:
        settle_member(state, member, member.ended_by)
        close(state, member)
        return
    item.terminal_members += 1
    if item.all_terminal and state.plan is not None:
        doom = doom_of(item, state.plan.config)
        if item.position is None:
            state.waiting[item.domain].pop(item.group_id, None)
            state.to_drop.append((item.group_id, doom))
        else:
            _finish_item(state, item, item.position, doom)


def _finish_item(state: State, item: Item, position: int, doom: str) -> None:
    item.finished, item.doom = True, doom
    state.in_flight -= 1
    state.doomed += bool(doom)
    item.duration_s = state.now_s - item.admitted_at_s
    state.stalls.lasted(item.duration_s)
    if state.plan is not None:
        if state.plan.auto is not None:
            state.plan.auto.lasted(item.duration_s, item.domain)
        state.plan.selection.finished(position, item.oldest_step)


def _settle_evaluation(state: State, member: Member, pinned_step: int) -> None:
    del state.evaluations[member.episode_id]
    state.tally.evaluated(member.ended_by)
    close(state, member)
    if member.admitted:
        state.evaluations_in_flight -= 1
        return
    waiting = state.evaluations_waiting[pinned_step]
    del waiting[member.episode_id]
    if not waiting:
        del state.evaluations_waiting[pinned_step]


def settle_member(state: State, member: Member, reason: str) -> None:
    """A training episode leaves the books: trained when the reason is empty, else dropped. May be called twice."""
    if state.members.pop(member.episode_id, None) is None:
        return
    if reason:
        state.tally.drop(reason)
    else:
        state.tally.trained += 1


def close(state: State, member: Member) -> None:
    """Nothing will be read of the episode any more. Later than settled where its batch names it untrained."""
    state.closed.append((state.completed, member.episode_id))


def settle_batch(state: State, step: int, reports: dict[str, TrainedEpisode], failure: str) -> None:
    """The trainer is done with a batch: what it reports of an episode decides, else `failure`."""
    for item in state.batches.pop(step, ()):
        for member in item.members:
            report = reports.get(member.episode_id)
            reason = failure
            if report is not None and not report.trained:
                reason = report.why_not or "not_trained"
            settle_member(state, member, reason)
            close(state, member)


def tidy(state: State) -> None:
    """Deadlines of episodes that are over don't stand first, so that `decide` need look at the first one only."""
    while state.deadlines:
        member = state.live(state.deadlines[0][1])
        if member is not None and not member.terminal:
            return
        heappop(state.deadlines)
