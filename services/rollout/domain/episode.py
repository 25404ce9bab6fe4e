"""What the workflow and its activities say to each other, and how an episode's end is decided. Pure.

It refuses to hold anything large: messages above 64 KiB are pointed at, tasks and keys are fetched where they're used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Outcome(IntEnum):
    """How the agent's part ended; the numbers are those of forgerl.common.v1.Outcome."""

    COMPLETED = 1
    AGENT_TIMEOUT = 2
    CONTEXT_OVERFLOW = 3
    INFRA = 4
    CANCELLED = 5


TRAINABLE = frozenset({Outcome.COMPLETED, Outcome.AGENT_TIMEOUT, Outcome.CONTEXT_OVERFLOW})

TOOL_LOOP = "tool_loop"
PROGRAM = "program"
"""The two styles of agents: our own loop, and any program in a sandbox."""
RECORDED = "recorded"
"""The style of an episode that was run elsewhere."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A pointer to bytes in the blob store."""

    uri: str
    sha256: str
    size_bytes: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is either here or, above 64 KiB, in a blob."""

    inline: str = ""
    blob: Blob | None = None


@dataclass(frozen=True, slots=True)
class EpisodeStart:
    """The workflow's input. `patience_s`: how long failing infrastructure is borne before the episode is given up.

    The last three say why it runs: the admission's correlation id, its event id and W3C traceparent.
    """

    episode_id: str
    run_id: str
    call_timeout_s: float
    patience_s: float
    correlation_id: str = ""
    causation_id: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn to serve. `said`: the conversation so far beyond the task's own messages, one text a turn."""

    episode_id: str
    turn: int
    last: bool
    said: Sequence[Text]
    budget_s: float
    call_timeout_s: float
    patience_s: float


@dataclass(frozen=True, slots=True)
class TurnServed:
    """What a turn brought: JSON list of new messages, and, where the agent's part ended with it, how (an Outcome)."""

    messages: Text
    agent_s: float
    tool_calls: int = 0
    failed_tool_calls: int = 0
    outcome: int = 0
    answer: Text = Text()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A black box to run to its end. `agent_timeout_s`: its budget, without time that calls waited in our queues."""

    episode_id: str
    agent: str
    agent_timeout_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended, complete: what is written down of it."""

    episode_id: str
    run_id: str
    outcome: int
    answer: Text = Text()
    detail: str = ""
    agent_wall_s: float = 0.0
    tool_calls: int = 0
    failed_tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """What `open_episode` found out. `style`: TOOL_LOOP or PROGRAM; `agent_timeout_s`: the agent's own budget.

    `recorded`: how it ended, when it was run elsewhere; then there's nothing to run. `written`: nor to write down.
    """

    agent: str
    style: str
    max_turns: int
    agent_timeout_s: float
    recorded: Ending | None = None
    # Histories from before this field say nothing of it: their workflows write the end themselves.
    written: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What a tool loop has spent so far."""

    agent_s: float = 0.0
    tool_calls: int = 0
    failed_tool_calls: int = 0

    def plus(self, served: TurnServed) -> "Tally":
        """The tally after one more turn."""
        return Tally(
            self.agent_s + served.agent_s,
            self.tool_calls + served.tool_calls,
            self.failed_tool_calls + served.failed_tool_calls,
        )


def ending_after(plan: EpisodePlan, start: EpisodeStart, tally: Tally, served: TurnServed) -> Ending | None:
    """The end that a turn brought about, or None when the loop goes on. A spent budget outweighs a late answer."""
    outcome, detail = served.outcome, served.detail
    if outcome in (0, Outcome.COMPLETED) and tally.agent_s > plan.agent_timeout_s:
        outcome, detail = Outcome.AGENT_TIMEOUT, f"agent time {tally.agent_s:.1f} s of {plan.agent_timeout_s:g} s"
    if outcome == 0:
        return None
    return Ending(
        start.episode_id,
        start.run_id,
        int(outcome),
        served.answer,
        detail,
        tally.agent_s,
        tally.tool_calls,
        tally.failed_tool_calls,
    )


def gave_up(start: EpisodeStart, outcome: Outcome, detail: str) -> Ending:
    """The end of an episode that can't be trained."""
    return Ending(start.episode_id, start.run_id, int(outcome), detail=detail[:500])
