"""What the workflow tests run on: scripted gateway, model and programs, and a journal in memory."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.environments.interface import SandboxResult, Task
from services.environments.tool import ToolEnvironment
from services.kernel.clock import SystemClock
from services.rollout.agents.agent import Agent
from services.rollout.application import Episodes
from services.rollout.domain.episode import Ending, EpisodeStart, Text, TurnServed
from services.rollout.ports import Brief, Credential, ModelCall, ProgramEnd, ProgramRun, Recorded, Reply
from services.rollout.tools import ToolCalls

ENVIRONMENT = ToolEnvironment()


def said(content: str, queue_s: float = 0.0) -> Reply:
    """A final answer."""
    return Reply({"role": "assistant", "content": content, "refusal": None}, "stop", queue_s)


def asks(code: str, arguments: str | None = None) -> Reply:
    """A call of the python tool."""
    import json

    function = {"name": "python", "arguments": json.dumps({"code": code}) if arguments is None else arguments}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    return Reply(message, "tool_calls", 0.0)


@dataclass
class ScriptedGateway:
    """Knows every episode; each has the same task."""

    agent: str = "tool_loop"
    agent_timeout_s: float = 60.0
    max_turns: int = 0
    failures: list[Exception] = field(default_factory=list)
    recorded: Recorded | None = None
    keys: int = 0

    async def brief(self, episode_id: str) -> Brief:
        if self.failures:
            raise self.failures.pop(0)
        task = ENVIRONMENT.task("train", 1)
        return Brief(episode_id, "run-1", self.agent, task, self.agent_timeout_s, self.max_turns, self.recorded)

    async def credential(self, episode_id: str) -> Credential:
        self.keys += 1
        return Credential("http://gateway/v1", f"key-{episode_id}", "policy")


@dataclass
class ScriptedModel:
    """Answers call by call; an exception in the script is raised, a float is waited for, in seconds."""

    script: list[Reply | Exception | float]
    calls: list[ModelCall] = field(default_factory=list)

    async def complete(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, float):
            await asyncio.sleep(step)
            return await self.complete(call)
        if isinstance(step, Exception):
            raise step
        return step


@dataclass
class MemoryJournal:
    """Remembers; the first end stands."""

    started: Counter[str] = field(default_factory=Counter)
    ends: dict[str, Ending] = field(default_factory=dict)
    served: dict[str, dict[int, TurnServed]] = field(default_factory=dict)

    async def record_started(self, start: EpisodeStart, agent: str) -> None:
        self.started[start.episode_id] += 1

    async def record_ended(self, start: EpisodeStart, ending: Ending) -> None:
        self.ends.setdefault(ending.episode_id, ending)

    async def record_elsewhere(self, start: EpisodeStart, ending: Ending) -> None:
        await self.record_ended(start, ending)

    async def turns(self, episode_id: str) -> dict[int, TurnServed]:
        return dict(self.served.get(episode_id, {}))

    async def record_turn(self, episode_id: str, turn: int, served: TurnServed) -> None:
        self.served.setdefault(episode_id, {}).setdefault(turn, served)


class InlineTexts:
    """Keeps everything inline."""

    async def pack(self, text: str) -> Text:
        return Text(text)

    async def unpack(self, text: Text) -> str:
        return text.inline


@dataclass
class ScriptedPrograms:
    """Runs no program; answers what it was told to."""

    ends: list[ProgramEnd | Exception]
    runs: list[ProgramRun] = field(default_factory=list)

    async def run(self, run: ProgramRun) -> ProgramEnd:
        self.runs.append(run)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


@dataclass
class ScriptedSandbox:
    """Evaluates nothing: answers from a function of the code."""

    answer: Callable[[str], SandboxResult] = lambda code: SandboxResult("42\n", "", 0, False)
    programs: list[str] = field(default_factory=list)

    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        self.programs.append(code)
        return self.answer(code)


def episodes(
    model: ScriptedModel,
    *,
    gateway: ScriptedGateway | None = None,
    journal: MemoryJournal | None = None,
    programs: ScriptedPrograms | None = None,
    sandbox: ScriptedSandbox | None = None,
) -> Episodes:
    """The application on scripted parts."""
    agents: Mapping[str, Agent] = {
        "tool_loop": Agent("tool_loop"),
        "script": Agent("script", ("/usr/bin/true",)),
    }
    return Episodes(
        gateway=gateway or ScriptedGateway(),
        model=model,
        journal=journal or MemoryJournal(),
        texts=InlineTexts(),
        programs=programs or ScriptedPrograms([]),
        tools=ToolCalls(sandbox or ScriptedSandbox(), SystemClock()),
        environments={"tool": ENVIRONMENT},
        agents=agents,
    )


def task() -> Task:
    """The one task of these tests."""
    return ENVIRONMENT.task("train", 1)
