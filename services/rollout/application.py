"""What this service does for an episode: open it, serve its turns, run its black box, write down its end.

Every step may run again after a crash and comes out the same. It refuses to decide who runs when (the scheduler's)
and what an answer is worth (the verifier's).
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from services.environments.interface import Environment, Message
from services.rollout.agents.agent import Agent
from services.rollout.domain.conversation import assistant_message, program_answer, tool_calls
from services.rollout.domain.episode import (
    RECORDED,
    Ending,
    EpisodePlan,
    EpisodeStart,
    Outcome,
    ProgramRequest,
    Text,
    TurnRequest,
    TurnServed,
)
from services.rollout.ports import (
    Brief,
    ContextOverflow,
    Credential,
    Gateway,
    Journal,
    KeyRefused,
    Model,
    ModelCall,
    ProgramEnd,
    ProgramRun,
    Programs,
    Recorded,
    Reply,
    Texts,
)
from services.rollout.registry import agent_named
from services.rollout.tools import ToolCalls

CONTEXT_OVERFLOW_CODE = "context_length_exceeded"
OPEN_EPISODES = 2_000
NO_LIMIT_S = 1e9
NO_KEY = Credential("", "", "")


@dataclass(slots=True)
class OpenEpisode:
    """What a worker holds of an episode while it runs; all of it can be asked for again."""

    brief: Brief
    credential: Credential
    environment: Environment
    turns: dict[int, TurnServed]


@dataclass(slots=True)
class Episodes:
    """The use cases, on the ports that are handed in."""

    gateway: Gateway
    model: Model
    journal: Journal
    texts: Texts
    programs: Programs
    tools: ToolCalls
    environments: Mapping[str, Environment]
    agents: Mapping[str, Agent]
    _open: OrderedDict[str, OpenEpisode] = field(default_factory=OrderedDict[str, OpenEpisode])
    _made: dict[str, Environment] = field(default_factory=dict[str, Environment])
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open_episode(self, start: EpisodeStart) -> EpisodePlan:
        """Find out what is to be run and record that it starts. Raises Permanent: no such agent or task.

        One that was run elsewhere ends as it is opened: its end is written down in the same breath.
        """
        episode = await self._episode(start.episode_id)
        brief = episode.brief
        if brief.recorded is not None:
            return await self._recorded(start, brief.recorded)
        agent = agent_named(self.agents, brief.agent or "tool_loop")
        await self.journal.record_started(start, agent.name)
        asked = [turns for turns in (brief.max_turns, episode.environment.max_turns(brief.task)) if turns > 0]
        return EpisodePlan(agent.name, agent.style, min(asked, default=1), brief.agent_timeout_s or NO_LIMIT_S)

    async def _recorded(self, start: EpisodeStart, recorded: Recorded) -> EpisodePlan:
        answer = await self.texts.pack(recorded.answer)
        ending = Ending(start.episode_id, start.run_id, recorded.outcome, answer, agent_wall_s=recorded.agent_wall_s)
        await self.journal.record_elsewhere(start, ending)
        return EpisodePlan(RECORDED, RECORDED, 0, NO_LIMIT_S, ending, written=True)

    async def serve_turn(self, request: TurnRequest) -> TurnServed:
        """One call of the model and of the tools it asks for; a turn whose tools answered before is answered again.

        Raises EpisodeSealed when it was called off, Transient, Permanent.
        """
        episode = await self._episode(request.episode_id)
        recorded = episode.turns.get(request.turn)
        if recorded is not None:
            return recorded
        try:
            spent, reply = await self._ask(episode, request)
        except ContextOverflow as overflow:
            return TurnServed(await self.texts.pack("[]"), 0.0, outcome=Outcome.CONTEXT_OVERFLOW, detail=str(overflow))
        message = assistant_message(reply.message)
        calls = tool_calls(message)
        if not calls or request.last or reply.finish_reason == "length":
            return await self._last_turn(message, reply, spent, len(calls))
        budget_s = request.budget_s - spent
        answered = await self.tools.answer(episode.environment, episode.brief.task, calls, budget_s)
        served = TurnServed(
            await self.texts.pack(json.dumps([message, *answered.messages])),
            spent + answered.seconds,
            len(calls),
            answered.failed,
            outcome=Outcome.AGENT_TIMEOUT if answered.out_of_time else 0,
            detail="a tool ran until the agent's budget was spent" if answered.out_of_time else "",
        )
        await self.journal.record_turn(request.episode_id, request.turn, served)
        episode.turns[request.turn] = served
        return served

    async def run_program(self, request: ProgramRequest, attempt: int) -> Ending:
        """Run a black box to its end, as attempt number `attempt`. Raises Transient when it was lost."""
        episode = await self._episode(request.episode_id)
        brief, agent = episode.brief, agent_named(self.agents, request.agent)
        tools = [tool.openai() for tool in episode.environment.tools(brief.task)]
        task_json = json.dumps({"messages": list(episode.environment.messages(brief.task)), "tools": tools})
        end = await self.programs.run(
            ProgramRun(
                request.episode_id, agent.command, attempt, task_json, episode.credential, request.agent_timeout_s
            )
        )
        outcome, detail = judge_program(end)
        answer = await self.texts.pack(program_answer(end.stdout))
        return Ending(request.episode_id, brief.run_id, int(outcome), answer, detail, end.agent_s)

    async def record_end(self, start: EpisodeStart, ending: Ending) -> None:
        """Write down how it ended; the first end that was written stands."""
        await self.journal.record_ended(start, ending)
        self._open.pop(ending.episode_id, None)

    async def _episode(self, episode_id: str) -> OpenEpisode:
        known = self._open.get(episode_id)
        if known is None:
            brief = await self.gateway.brief(episode_id)
            environment = await self._environment(brief.task.environment)
            if brief.recorded is not None:
                # What was run elsewhere makes no calls here, so it gets no key and has no turns.
                return OpenEpisode(brief, NO_KEY, environment, {})
            credential = await self.gateway.credential(episode_id)
            known = OpenEpisode(brief, credential, environment, await self.journal.turns(episode_id))
            self._open[episode_id] = known
            while len(self._open) > OPEN_EPISODES:
                self._open.popitem(last=False)
        self._open.move_to_end(episode_id)
        return known

    async def _environment(self, name: str) -> Environment:
        if name not in self._made:
            async with self._making:
                if name not in self._made:
                    # In a thread: some take seconds to import, and calls of other episodes must go on meanwhile.
                    self._made[name] = await asyncio.to_thread(self.environments.__getitem__, name)
        return self._made[name]

    async def _ask(self, episode: OpenEpisode, request: TurnRequest) -> tuple[float, Reply]:
        """The model's reply and the agent's time in it: what the call took, without our queues."""
        task, environment = episode.brief.task, episode.environment
        messages: list[Message] = list(environment.messages(task))
        for text in request.said:
            messages.extend(cast("Sequence[Message]", json.loads(await self.texts.unpack(text))))
        call = ModelCall(
            episode.credential,
            f"{request.episode_id}/1/{request.turn}",
            messages,
            environment.tools(task),
            request.call_timeout_s,
        )
        began_s = self.tools.clock.monotonic()
        try:
            reply = await self.model.complete(call)
        except KeyRefused:
            # Keys expire; the episode stays open in the meantime, so the next attempt asks with a new one.
            self._open.pop(request.episode_id, None)
            raise
        return max(0.0, self.tools.clock.monotonic() - began_s - reply.queue_s), reply

    async def _last_turn(self, message: Message, reply: Reply, spent_s: float, calls: int) -> TurnServed:
        outcome, detail = Outcome.COMPLETED, ""
        if reply.finish_reason == "length":
            outcome, detail = Outcome.AGENT_TIMEOUT, "the token budget of a turn ran out"
        elif calls:
            outcome, detail = Outcome.AGENT_TIMEOUT, "the last turn still asked for tools"
        answer = await self.texts.pack(str(message["content"]))
        # Nobody asks again what was said in a last turn: kept as a blob, it would be one that no event names.
        return TurnServed(Text("[]"), spent_s, outcome=outcome, answer=answer, detail=detail)


def judge_program(end: ProgramEnd) -> tuple[Outcome, str]:
    """Whose doing a black box's end was: its own, the model's limit's, the user's, or ours (DESIGN 10)."""
    if end.timed_out:
        return Outcome.AGENT_TIMEOUT, f"agent time {end.agent_s:.1f} s"
    if end.exit_code == 0:
        return Outcome.COMPLETED, ""
    detail = f"exit code {end.exit_code} after {end.calls} calls, the last one answered {end.last_status}"
    if end.last_error == CONTEXT_OVERFLOW_CODE:
        return Outcome.CONTEXT_OVERFLOW, detail
    if end.last_status == 409:
        return Outcome.CANCELLED, detail
    if end.calls == 0 or end.last_status >= 500:
        return Outcome.INFRA, detail
    return Outcome.COMPLETED, detail
