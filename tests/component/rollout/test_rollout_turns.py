"""One turn of the tool loop, on scripted parts."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping

import pytest
from rollout_scripted import (
    ENVIRONMENT,
    MemoryJournal,
    ScriptedGateway,
    ScriptedModel,
    ScriptedSandbox,
    asks,
    episodes,
    said,
)

from services.environments.interface import Environment, SandboxResult
from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput, Transient
from services.rollout.adapters.texts import BlobTexts
from services.rollout.domain.episode import EpisodeStart, Outcome, Text, TurnRequest
from services.rollout.ports import ContextOverflow, EpisodeSealed, KeyRefused, Reply

START = EpisodeStart("ep-1", "run-1", 30.0, 60.0)


def turn(number: int = 0, *, last: bool = False, budget_s: float = 60.0, texts: tuple[Text, ...] = ()) -> TurnRequest:
    return TurnRequest("ep-1", number, last, texts, budget_s, 30.0, 60.0)


async def test_an_episode_opens_with_the_smaller_of_the_turn_limits():
    assert (await episodes(ScriptedModel([said("")])).open_episode(START)).max_turns == 3
    asked = episodes(ScriptedModel([said("")]), gateway=ScriptedGateway(max_turns=2, agent_timeout_s=0))
    plan = await asked.open_episode(START)
    assert (plan.agent, plan.style, plan.max_turns, plan.agent_timeout_s) == ("tool_loop", "tool_loop", 2, 1e9)


class SlowToImport(Mapping[str, Environment]):
    """Holds whoever asks until it's let go, as an import of seconds does."""

    def __init__(self) -> None:
        self.asked, self.go, self.made = threading.Event(), threading.Event(), 0

    def __getitem__(self, name: str) -> Environment:
        self.asked.set()
        assert self.go.wait(10), "the event loop stands still"
        self.made += 1
        return ENVIRONMENT

    def __iter__(self) -> Iterator[str]:
        return iter(["tool"])

    def __len__(self) -> int:
        return 1


async def test_an_environment_that_takes_seconds_to_import_holds_up_nobody_else():
    parts, slow = episodes(ScriptedModel([said("")])), SlowToImport()
    parts.environments = slow
    opening = [
        asyncio.create_task(parts.open_episode(EpisodeStart(f"ep-{number}", "run-1", 30.0, 60.0)))
        for number in range(2)
    ]
    assert await asyncio.to_thread(slow.asked.wait, 10)
    slow.go.set()
    assert [plan.max_turns for plan in await asyncio.gather(*opening)] == [3, 3]
    assert slow.made == 1


async def test_an_unknown_agent_is_refused_before_anything_starts():
    journal = MemoryJournal()
    parts = episodes(ScriptedModel([said("")]), gateway=ScriptedGateway(agent="nobody"), journal=journal)
    with pytest.raises(InvalidInput, match="allowed script, tool_loop"):
        await parts.open_episode(START)
    assert not journal.started


async def test_an_answer_ends_the_agents_part():
    served = await episodes(ScriptedModel([said("1234")])).serve_turn(turn())
    assert (served.outcome, served.answer.inline) == (Outcome.COMPLETED, "1234")
    assert served.messages == Text("[]")


async def test_a_long_answer_is_put_once_and_its_last_turn_says_nothing_more(tmp_path):
    parts = episodes(ScriptedModel([said("x" * 70_000)]))
    parts.texts = BlobTexts(Blobs.open(f"file://{tmp_path}"))
    served = await parts.serve_turn(turn())
    assert served.answer.blob is not None
    # Beside the answer there would be one that no event names, and that so nobody frees.
    assert [path.name for path in tmp_path.rglob("*.zst")] == [f"{served.answer.blob.sha256}.zst"]


async def test_a_tool_call_runs_and_is_written_down_before_it_is_answered():
    journal, sandbox, model = MemoryJournal(), ScriptedSandbox(), ScriptedModel([asks("6*7"), said("42")])
    parts = episodes(model, journal=journal, sandbox=sandbox)
    served = await parts.serve_turn(turn())
    assert served.outcome == 0 and (served.tool_calls, served.failed_tool_calls) == (1, 0)
    assert sandbox.programs == ["print(6 * 7)"]
    assert json.loads(served.messages.inline)[1] == {"role": "tool", "tool_call_id": "c1", "content": "42"}
    assert journal.served["ep-1"][0] == served
    await parts.serve_turn(turn(1, texts=(served.messages,)))
    assert [message["role"] for message in model.calls[1].messages] == ["system", "user", "assistant", "tool"]
    assert [call.idempotency_key for call in model.calls] == ["ep-1/1/0", "ep-1/1/1"]


async def test_a_new_worker_answers_a_served_turn_from_the_journal():
    journal, sandbox = MemoryJournal(), ScriptedSandbox()
    first = await episodes(ScriptedModel([asks("6*7")]), journal=journal, sandbox=sandbox).serve_turn(turn())
    model = ScriptedModel([said("never asked")])
    again = await episodes(model, journal=journal, sandbox=sandbox).serve_turn(turn())
    assert again == first and not model.calls and len(sandbox.programs) == 1


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (asks("", arguments="{"), "not a JSON object"),
        (asks("", arguments='{"x": 1}'), "python takes code"),
        (asks("1 +"), "SyntaxError"),
    ],
)
async def test_a_bad_call_is_told_to_the_model(reply: Reply, told: str):
    served = await episodes(ScriptedModel([reply])).serve_turn(turn())
    assert served.outcome == 0 and served.failed_tool_calls == 1
    assert told in json.loads(served.messages.inline)[1]["content"]


async def test_a_program_that_fails_is_told_to_the_model():
    sandbox = ScriptedSandbox(lambda code: SandboxResult("", "ZeroDivisionError: division by zero\n", 1, False))
    served = await episodes(ScriptedModel([asks("1/0")]), sandbox=sandbox).serve_turn(turn())
    assert json.loads(served.messages.inline)[1]["content"] == "error: ZeroDivisionError: division by zero"


async def test_the_last_turn_runs_no_tools():
    sandbox = ScriptedSandbox()
    served = await episodes(ScriptedModel([asks("1")]), sandbox=sandbox).serve_turn(turn(2, last=True))
    assert (served.outcome, served.detail) == (Outcome.AGENT_TIMEOUT, "the last turn still asked for tools")
    assert not sandbox.programs


async def test_a_turn_cut_by_its_token_budget_is_a_timeout():
    served = await episodes(ScriptedModel([Reply({"content": "12"}, "length", 0.0)])).serve_turn(turn())
    assert (served.outcome, served.answer.inline) == (Outcome.AGENT_TIMEOUT, "12")


async def test_a_prompt_beyond_the_model_is_an_overflow():
    served = await episodes(ScriptedModel([ContextOverflow("too long")])).serve_turn(turn())
    assert (served.outcome, served.detail) == (Outcome.CONTEXT_OVERFLOW, "too long")


@pytest.mark.parametrize("failure", [EpisodeSealed("over"), Transient("away")])
async def test_what_is_not_the_agents_doing_goes_up(failure: Exception):
    with pytest.raises(type(failure)):
        await episodes(ScriptedModel([failure])).serve_turn(turn())


async def test_queueing_is_not_the_agents_time():
    served = await episodes(ScriptedModel([0.2, said("42", queue_s=0.15)])).serve_turn(turn())
    assert 0.04 < served.agent_s < 0.15


async def test_a_refused_key_is_asked_for_anew():
    gateway = ScriptedGateway()
    parts = episodes(ScriptedModel([KeyRefused("expired"), said("42")]), gateway=gateway)
    with pytest.raises(KeyRefused):
        await parts.serve_turn(turn())
    gateway.failures.append(Transient("the gateway is asked again"))
    with pytest.raises(Transient, match="asked again"):
        await parts.serve_turn(turn())
    assert (await parts.serve_turn(turn())).answer.inline == "42"
