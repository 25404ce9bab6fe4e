"""Answers the tool calls of one turn, one after the other, within what is left of the agent's time.

It refuses to fail for a bad call: whatever is wrong with it is told to the model as the call's result.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from services.environments.interface import Environment, Sandbox, Task, ToolFailure
from services.kernel.clock import Clock
from services.rollout.domain.conversation import ToolCall, tool_message

MAX_RESULT_CHARS = 16 * 1024
LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class ToolsAnswered:
    """What the tools said: one message a call, in the calls' order."""

    messages: Sequence[dict[str, object]]
    failed: int
    seconds: float
    out_of_time: bool


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Serves calls by the task's environment, on a sandbox."""

    sandbox: Sandbox
    clock: Clock

    async def answer(
        self, environment: Environment, task: Task, calls: Sequence[ToolCall], budget_s: float
    ) -> ToolsAnswered:
        """Answer each call; where `budget_s` runs out, that call and the later ones are answered with saying so."""
        began_s = self.clock.monotonic()
        messages: list[dict[str, object]] = []
        failed, out_of_time = 0, False
        for call in calls:
            left_s = budget_s - (self.clock.monotonic() - began_s)
            result, served, in_time = await self._call(environment, task, call, left_s)
            messages.append(tool_message(call, result[:MAX_RESULT_CHARS]))
            failed += not served
            out_of_time = out_of_time or not in_time
        return ToolsAnswered(messages, failed, self.clock.monotonic() - began_s, out_of_time)

    async def _call(
        self, environment: Environment, task: Task, call: ToolCall, left_s: float
    ) -> tuple[str, bool, bool]:
        """The result, whether the call was a good one, and whether there was time for it."""
        if call.arguments is None:
            return f"error: the arguments of {call.name} are not a JSON object: {call.raw[:200]}", False, True
        if left_s <= 0:
            return "error: no time left", False, False
        try:
            async with asyncio.timeout(min(left_s, LONGEST_WAIT_S)):
                return await environment.call_tool(task, call.name, call.arguments, self.sandbox), True, True
        except ToolFailure as failure:
            return str(failure), False, True
        except TimeoutError:
            return "error: no time left", False, False
