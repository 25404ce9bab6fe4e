"""An episode's workflow on the time-skipping server, with scripted effects."""

from dataclasses import replace

import pytest
from rollout_scripted import (
    MemoryJournal,
    ScriptedGateway,
    ScriptedModel,
    ScriptedPrograms,
    ScriptedSandbox,
    asks,
    episodes,
    said,
)
from temporalio.client import Client

from services.environments.interface import SandboxResult
from services.kernel.errors import Permanent, Transient
from services.rollout.application import Episodes
from services.rollout.domain.episode import EpisodeStart, Outcome
from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.worker import EpisodeWorker
from services.rollout.entrypoints.workflow import EpisodeWorkflow
from services.rollout.ports import ContextOverflow, EpisodeSealed, ProgramEnd, Recorded

START = EpisodeStart("ep-1", "run-1", 30.0, 60.0)
ANSWERED = ProgramEnd('{"answer": "7"}\n', 0, False, 2.5, 2, 200, "")


async def outcome_of(client: Client, parts: Episodes, start: EpisodeStart = START) -> Outcome:
    worker = EpisodeWorker(client, "episodes", EpisodeActivities(parts), 8, sandboxed=True).build()
    async with worker:
        return Outcome(
            await client.execute_workflow(EpisodeWorkflow.run, start, id=start.episode_id, task_queue="episodes")
        )


async def test_the_loop_calls_the_tool_and_answers(skipping: Client):
    journal = MemoryJournal()
    model = ScriptedModel([asks("6*7"), said("42")])
    assert await outcome_of(skipping, episodes(model, journal=journal)) is Outcome.COMPLETED
    ending = journal.ends["ep-1"]
    assert (ending.answer.inline, ending.tool_calls, ending.failed_tool_calls) == ("42", 1, 0)
    assert journal.started == {"ep-1": 1}


async def test_a_failing_tool_is_counted_and_the_loop_goes_on(skipping: Client):
    journal = MemoryJournal()
    sandbox = ScriptedSandbox(lambda code: SandboxResult("", "NameError: x", 1, False))
    model = ScriptedModel([asks("x"), said("no idea")])
    assert await outcome_of(skipping, episodes(model, journal=journal, sandbox=sandbox)) is Outcome.COMPLETED
    assert (journal.ends["ep-1"].tool_calls, journal.ends["ep-1"].failed_tool_calls) == (1, 1)


async def test_what_was_run_elsewhere_ends_as_it_did_without_a_call_or_a_key(skipping: Client):
    journal, model = MemoryJournal(), ScriptedModel([said("never asked")])
    gateway = ScriptedGateway(recorded=Recorded(int(Outcome.AGENT_TIMEOUT), "41", 7.5))
    assert await outcome_of(skipping, episodes(model, journal=journal, gateway=gateway)) is Outcome.AGENT_TIMEOUT
    ending = journal.ends["ep-1"]
    assert (ending.answer.inline, ending.agent_wall_s, model.calls, gateway.keys) == ("41", 7.5, [], 0)


async def test_wanting_tools_for_ever_is_a_timeout(skipping: Client):
    journal = MemoryJournal()
    model = ScriptedModel([asks("1")])
    assert await outcome_of(skipping, episodes(model, journal=journal)) is Outcome.AGENT_TIMEOUT
    assert len(model.calls) == 3 and journal.ends["ep-1"].tool_calls == 2


async def test_an_agent_that_spent_its_time_is_a_timeout(skipping: Client):
    journal = MemoryJournal()
    gateway = ScriptedGateway(agent_timeout_s=0.05)
    parts = episodes(ScriptedModel([0.1, said("42")]), journal=journal, gateway=gateway)
    assert await outcome_of(skipping, parts) is Outcome.AGENT_TIMEOUT
    assert journal.ends["ep-1"].answer.inline == "42" and journal.ends["ep-1"].agent_wall_s > 0.05


async def test_transient_failures_are_outlasted(skipping: Client):
    journal = MemoryJournal()
    gateway = ScriptedGateway(failures=[Transient("gateway starting")])
    model = ScriptedModel([Transient("engine away"), said("42")])
    assert await outcome_of(skipping, episodes(model, journal=journal, gateway=gateway)) is Outcome.COMPLETED
    assert [call.idempotency_key for call in model.calls] == ["ep-1/1/0", "ep-1/1/0"]


@pytest.mark.parametrize(
    ("failure", "outcome", "detail"),
    [
        (Permanent("a bad request"), Outcome.INFRA, "Permanent: a bad request"),
        (EpisodeSealed("over"), Outcome.CANCELLED, "EpisodeSealed: over"),
        (ContextOverflow("too long"), Outcome.CONTEXT_OVERFLOW, "too long"),
    ],
)
async def test_failures_by_class(skipping: Client, failure: Exception, outcome: Outcome, detail: str):
    journal = MemoryJournal()
    assert await outcome_of(skipping, episodes(ScriptedModel([failure]), journal=journal)) is outcome
    assert journal.ends["ep-1"].detail == detail


async def test_infrastructure_that_stays_away_is_given_up(skipping: Client):
    journal = MemoryJournal()
    parts = episodes(ScriptedModel([Transient("engine away")]), journal=journal)
    assert await outcome_of(skipping, parts, replace(START, patience_s=0.5)) is Outcome.INFRA
    assert journal.ends["ep-1"].detail == "Permanent: given up after 1 s: engine away"


async def test_a_task_that_cannot_be_used_fails_at_once(skipping: Client):
    journal = MemoryJournal()
    gateway = ScriptedGateway(agent="nobody")
    parts = episodes(ScriptedModel([said("")]), journal=journal, gateway=gateway)
    assert await outcome_of(skipping, parts) is Outcome.INFRA
    assert "allowed script, tool_loop" in journal.ends["ep-1"].detail


async def test_a_black_box_that_was_lost_is_tried_again_as_the_next_attempt(skipping: Client):
    journal = MemoryJournal()
    programs = ScriptedPrograms([Transient("box lost"), ANSWERED])
    gateway = ScriptedGateway(agent="script", agent_timeout_s=20.0)
    parts = episodes(ScriptedModel([said("")]), journal=journal, gateway=gateway, programs=programs)
    assert await outcome_of(skipping, parts) is Outcome.COMPLETED
    assert [(run.attempt, run.budget_s) for run in programs.runs] == [(1, 20.0), (2, 20.0)]
    assert (journal.ends["ep-1"].answer.inline, journal.ends["ep-1"].agent_wall_s) == ("7", 2.5)


async def test_the_same_id_starts_once(skipping: Client):
    from temporalio.common import WorkflowIDReusePolicy
    from temporalio.exceptions import WorkflowAlreadyStartedError

    journal = MemoryJournal()
    assert await outcome_of(skipping, episodes(ScriptedModel([said("42")]), journal=journal)) is Outcome.COMPLETED
    with pytest.raises(WorkflowAlreadyStartedError):
        await skipping.start_workflow(
            EpisodeWorkflow.run,
            START,
            id="ep-1",
            task_queue="episodes",
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
