"""The rules: given a state, the next decision that is due, or None. Pure; asking changes nothing.

The order of the rules is part of the design: endings first (they free places), then evaluation (it goes first),
then consumption, hand-over and admission. Decided here:
- Evaluation and training share one capacity of C * G episodes; evaluation takes single places, an item needs G
  free ones.
- Evaluation never waits for batches that are being trained: it runs while its policy is the newest, and is
  revoked when it no longer is.
- A doomed item is dropped when the window reaches it, also while no batch is wanted; one that could be trained
  waits for a batch.
- In cohort mode nobody is admitted beyond the cohort of the head; the next one opens when this one is consumed.
- The window changes between two batches, never while one is filled.
- Look-ahead S binds twice: a batch b is filled only after step b - 1 - S, and an item is admitted only if, counting
  everything unconsumed ahead of it, it belongs to a batch b <= published + 1 + S. Items known to be doomed don't
  count, so their places are given away before the window gets there.
- Pruning comes last: nothing waits for it. What closed in the order of time goes in that order.
"""

from itertools import islice, takewhile

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
from services.scheduler.domain.state import Plan, State

PRUNED_AT_ONCE = 200
"""Episodes of one decision, and so of one event."""


def decide(state: State) -> Decision | None:
    """The next decision, O(log n) in the length of the queue."""
    plan = state.plan
    if plan is None:
        return None
    return (
        _revoke(state)
        or _drop_unqueued(state)
        or _set_window(state, plan)
        or _admit_evaluation(state, plan)
        or _consume(state, plan)
        or _close_batch(state, plan)
        or _admit_item(state, plan)
        or _prune(state)
    )


def _revoke(state: State) -> Decision | None:
    if state.to_revoke:
        return Revoke(*state.to_revoke[0])
    if state.deadlines and state.deadlines[0][0] <= state.now_s:
        return Revoke(state.deadlines[0][1], "deadline")
    return None


def _drop_unqueued(state: State) -> Decision | None:
    if not state.to_drop:
        return None
    group_id, reason = state.to_drop[0]
    return DropItem(group_id, state.item_of(group_id).position, reason)


def _set_window(state: State, plan: Plan) -> Decision | None:
    """Between two batches only, so that one window holds for the whole of a batch."""
    if plan.auto is None or state.filling or plan.auto.window_items == state.window_items:
        return None
    return SetWindow(plan.auto.window_items)


def _free_episodes(state: State, plan: Plan) -> int:
    config = plan.config
    busy = state.evaluations_in_flight + state.in_flight * config.group_size
    capacity = config.in_flight_items * config.group_size
    return (min(capacity, state.fleet_episodes) if state.fleet_episodes else capacity) - busy


def _admit_evaluation(state: State, plan: Plan) -> Decision | None:
    waiting = state.evaluations_waiting.get(state.published)
    if not waiting or _free_episodes(state, plan) < 1:
        return None
    return AdmitEvaluation(next(iter(waiting)), state.now_s + plan.config.deadline_s)


def _consume(state: State, plan: Plan) -> Decision | None:
    position = plan.selection.next(state.head, state.next_batch - 1)
    if position is None:
        return None
    item = state.queue[position]
    if item.doom:
        return DropItem(item.group_id, position, item.doom)
    too_stale = plan.too_stale(state.next_batch - 1 - item.oldest_step)
    # A version window's item that has left it stands before all others; elsewhere it waits until a batch wants it.
    if too_stale and plan.config.selection == "version_window":
        return DropItem(item.group_id, position, "too_stale")
    if len(state.filling) >= plan.config.items_per_batch or not state.may_fill(state.next_batch):
        return None
    if too_stale:
        return DropItem(item.group_id, position, "too_stale")
    return TakeItem(item.group_id, position, state.next_batch, position - state.head)


def _close_batch(state: State, plan: Plan) -> Decision | None:
    if state.ended or state.evaluation_holds or len(state.filling) < plan.config.items_per_batch:
        return None
    return CloseBatch(state.next_batch)


def _admit_item(state: State, plan: Plan) -> Decision | None:
    config = plan.config
    if state.published < 0 or state.ended or _free_episodes(state, plan) < config.group_size:
        return None
    if len(state.queue) >= config.queue_items:
        return None
    ahead = len(state.filling) + len(state.queue) - state.doomed
    batch = state.next_batch + ahead // config.items_per_batch
    if not state.may_generate_for(batch):
        return None
    if plan.too_stale(batch - 1 - state.published) or state.cohort_is_full:
        return None
    domain = plan.mix.next(state.waiting_domains())
    if domain is None:
        return None
    return AdmitItem(next(iter(state.waiting[domain])), state.tail, state.now_s + config.deadline_s)


def _prune(state: State) -> Decision | None:
    keep_steps = state.prunable
    if keep_steps is None:
        return None
    last = state.completed - keep_steps
    oldest = takewhile(lambda closed: closed[0] <= last, islice(state.closed, PRUNED_AT_ONCE))
    return PruneEpisodes(tuple(episode_id for _, episode_id in oldest), keep_steps)
