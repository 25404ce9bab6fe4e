"""SchedulerService: capacity, window and ledger, read from the queue's state; and pruning. Refuses to decide."""

from datetime import UTC, datetime
from typing import Any

from forgerl.scheduler.v1 import scheduler_service_pb2 as pb
from forgerl.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

from services.scheduler.application import Scheduler
from services.scheduler.domain.books import DomainBook, balanced, domain_books, in_flight_by_stage
from services.scheduler.domain.capacity import capacity
from services.scheduler.domain.state import State


class SchedulerRpc(SchedulerServiceServicer):
    """Raises NotFound for runs and episodes that the scheduler has not heard of (yet)."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    async def GetCapacity(self, request: pb.GetCapacityRequest, context: Any) -> pb.Capacity:
        state = await self._scheduler.state(request.run_id)
        found = capacity(state)
        return pb.Capacity(
            queued_items=sum(found.waiting.values()),
            in_flight_items=state.in_flight,
            wanted_items=sum(found.wanted.values()),
            wanted_by_domain=found.wanted,
            target_by_domain=found.target,
            fleet_episodes=state.fleet_episodes,
        )

    async def GetWindow(self, request: pb.GetWindowRequest, context: Any) -> pb.WindowState:
        return window(await self._scheduler.state(request.run_id))

    async def ExplainEpisode(self, request: pb.ExplainEpisodeRequest, context: Any) -> pb.EpisodeLedger:
        run_id, lines, verdict = await self._scheduler.explain(request.episode_id)
        ledger = pb.EpisodeLedger(episode_id=request.episode_id, run_id=run_id, verdict=verdict)
        for line in lines:
            added = ledger.lines.add(event_id=line.event_id, fact=line.text)
            added.time.FromDatetime(datetime.fromtimestamp(line.time_s, UTC))
        return ledger

    async def GetLedger(self, request: pb.GetLedgerRequest, context: Any) -> pb.RunLedger:
        return ledger(await self._scheduler.state(request.run_id))

    async def PruneEpisodes(self, request: pb.PruneEpisodesRequest, context: Any) -> pb.PruneEpisodesResponse:
        steps, episodes, event_ids = await self._scheduler.prune(request.run_id, request.keep_steps)
        return pb.PruneEpisodesResponse(steps=steps, episodes=episodes, event_ids=event_ids)


def window(state: State) -> pb.WindowState:
    """Positions from the head on, admitted and not consumed, or consumed before the head came to them."""
    view = pb.WindowState(head=state.head, in_flight_items=state.in_flight)
    view.measured_stall_share = state.stalls.measured_share
    view.achieved_mix.update(state.tally.achieved_mix())
    if state.plan is not None:
        config = state.plan.config
        view.window_items, view.queue_items = state.window_items, config.queue_items
        view.wanted_mix.update(config.shares)
        view.expected_stall_share = state.expected_stall_share
    rows = [
        pb.WindowItem(
            position=position,
            group_id=item.group_id,
            domain=item.domain,
            state="finished" if item.finished else "in_flight",
            members=len(item.members),
            terminal_members=item.terminal_members,
        )
        for position, item in state.queue.items()
    ]
    rows += [
        pb.WindowItem(
            position=position,
            group_id=passed.group_id,
            domain=passed.domain,
            state="dropped" if passed.dropped else "consumed",
            members=passed.members,
            terminal_members=passed.members,
        )
        for position, passed in state.passed.items()
    ]
    view.items.extend(sorted(rows, key=lambda row: row.position))
    return view


def _domain(book: DomainBook) -> pb.DomainLedger:
    return pb.DomainLedger(
        wanted_share=book.wanted_share,
        submitted_groups=book.submitted_groups,
        submitted_share=book.submitted_share,
        consumed_items=book.consumed_items,
        consumed_share=book.consumed_share,
        taken_items=book.taken_items,
        dropped_items=book.dropped_items,
    )


def ledger(state: State) -> pb.RunLedger:
    """Totals of the run; what is in flight is counted by itself, not as a difference."""
    tally = state.tally
    return pb.RunLedger(
        submitted=tally.submitted,
        trained=tally.trained,
        dropped=tally.dropped,
        in_flight=len(state.members),
        in_flight_by_stage=in_flight_by_stage(state),
        balanced=balanced(state),
        evaluations=tally.evaluations,
        evaluations_ended=tally.evaluations_ended,
        evaluations_in_flight=len(state.evaluations),
        batches=state.handed,
        out_of_order_max=tally.distance_max,
        out_of_order_mean=tally.distance_mean,
        staleness_mean=tally.staleness_mean,
        staleness_max=tally.staleness_max,
        lag_items_max=tally.lag_max,
        lag_items_mean=tally.lag_mean,
        partial_episodes=tally.partial_episodes,
        window_items=state.window_items,
        fleet_episodes=state.fleet_episodes,
        pruned=tally.pruned,
        domains={name: _domain(book) for name, book in domain_books(state).items()},
        wanted_mix=state.plan.config.shares if state.plan else {},
        achieved_mix=tally.achieved_mix(),
        measured_stall_share=state.stalls.measured_share,
    )
