"""The workflow of one episode: it survives whatever runs it, and comes to exactly one recorded end.

Deterministic: it imports its domain and temporalio, nothing else, and does everything that has effects by activities.
The steps are local activities: a whole episode then costs the Temporal server one or two tasks. A black box, which runs
for minutes in a process of its own, is an ordinary activity with heartbeats.
"""

from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from services.rollout.domain.episode import (
        PROGRAM,
        Ending,
        EpisodePlan,
        EpisodeStart,
        Outcome,
        ProgramRequest,
        Tally,
        Text,
        TurnRequest,
        TurnServed,
        ending_after,
        gave_up,
    )

OPEN_EPISODE = "open_episode"
SERVE_TURN = "serve_turn"
RUN_PROGRAM = "run_program"
RECORD_END = "record_end"

# By class name, since that is how an error crosses from an activity: these fail again however often they're tried.
CALLED_OFF = "EpisodeSealed"
NEVER_AGAIN = ("Permanent", "InvalidInput", "NotFound", "Refused", "Unauthenticated", CALLED_OFF)
HEARTBEAT_TIMEOUT_S = 10.0
RECORDING_TIMEOUT_S = 30.0
LONGEST_PROGRAM_S = 86_400.0
R = TypeVar("R")


@workflow.defn
class EpisodeWorkflow:
    """Opens an episode, lets its agent run, records how it ended. Its id is the episode's."""

    @workflow.run
    async def run(self, start: EpisodeStart) -> int:
        """Returns the Outcome."""
        try:
            plan = await local(OPEN_EPISODE, start, EpisodePlan, RECORDING_TIMEOUT_S)
            if plan.recorded is not None and plan.written:
                return plan.recorded.outcome
            ending = plan.recorded or await self._agent(start, plan)
        except BaseException as error:
            if is_cancelled_exception(error):
                ending = gave_up(start, Outcome.CANCELLED, "called off")
            elif isinstance(error, FailureError):
                line = reason_of(error)
                called_off = line.startswith(CALLED_OFF)
                ending = gave_up(start, Outcome.CANCELLED if called_off else Outcome.INFRA, line)
            else:
                raise
        await self._record(start, ending)
        return ending.outcome

    async def _agent(self, start: EpisodeStart, plan: EpisodePlan) -> Ending:
        if plan.style == PROGRAM:
            return await self._program(start, plan)
        said: list[Text] = []
        tally = Tally()
        for turn in range(plan.max_turns):
            left_s = plan.agent_timeout_s - tally.agent_s
            request = TurnRequest(
                start.episode_id, turn, turn + 1 == plan.max_turns, said, left_s, start.call_timeout_s, start.patience_s
            )
            attempt_s = start.call_timeout_s + min(left_s, LONGEST_PROGRAM_S) + RECORDING_TIMEOUT_S
            served = await local(SERVE_TURN, request, TurnServed, attempt_s)
            tally = tally.plus(served)
            ending = ending_after(plan, start, tally, served)
            if ending is not None:
                return ending
            said.append(served.messages)
        return gave_up(start, Outcome.INFRA, "a last turn without an end")

    async def _program(self, start: EpisodeStart, plan: EpisodePlan) -> Ending:
        longest_s = min(plan.agent_timeout_s, LONGEST_PROGRAM_S)
        return await workflow.execute_activity(
            RUN_PROGRAM,
            ProgramRequest(start.episode_id, plan.agent, plan.agent_timeout_s),
            result_type=Ending,
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
            # Queueing in this system isn't the agent's time, so the activity outlasts the agent's own budget.
            schedule_to_close_timeout=timedelta(seconds=2 * (longest_s + start.patience_s)),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            retry_policy=retries(),
        )

    async def _record(self, start: EpisodeStart, ending: Ending) -> None:
        await workflow.execute_local_activity(
            RECORD_END,
            args=[start, ending],
            start_to_close_timeout=timedelta(seconds=RECORDING_TIMEOUT_S),
            retry_policy=retries(),
        )


async def local(name: str, argument: object, result: type[R], attempt_s: float) -> R:
    """A local activity, `attempt_s` an attempt; how long it is tried is the activity's own patience.

    The SDK does not hold a local activity that is retried to its schedule-to-close timeout.
    """
    return await workflow.execute_local_activity(
        name,
        argument,
        result_type=result,
        start_to_close_timeout=timedelta(seconds=attempt_s),
        retry_policy=retries(),
    )


def retries() -> RetryPolicy:
    """Again with backoff, without end."""
    return RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
        non_retryable_error_types=list(NEVER_AGAIN),
    )


def reason_of(error: BaseException) -> str:
    """The line of what the activity failed with, without the wrappings of its way here."""
    while error.__cause__ is not None and not isinstance(error, ApplicationError):
        error = error.__cause__
    return str(error) if isinstance(error, FailureError) else f"{type(error).__name__}: {error}"
