"""What this service needs from outside, as the application sees it; adapters implement it, tests script it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.environments.interface import Message, Task, ToolSpec
from services.rollout.domain.conversation import JsonObject
from services.rollout.domain.episode import Ending, EpisodeStart, Text, TurnServed


@dataclass(frozen=True, slots=True)
class Recorded:
    """How an episode that was run elsewhere ended; `outcome` is the number of an Outcome."""

    outcome: int
    answer: str
    agent_wall_s: float


@dataclass(frozen=True, slots=True)
class Brief:
    """What the gateway says about an episode. `agent_timeout_s` and `max_turns` are 0 where nothing was asked."""

    episode_id: str
    run_id: str
    agent: str
    task: Task
    agent_timeout_s: float
    max_turns: int
    recorded: Recorded | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """Where and with which key an episode's agent calls its model. `base_url` ends in /v1."""

    base_url: str
    # Not in what an error or a log line shows of it.
    api_key: str = field(repr=False)
    model: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the model. A repeat under the same `idempotency_key` gets the first one's answer."""

    credential: Credential
    idempotency_key: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's message in OpenAI form. `queue_s`: how long the call waited in our queues, of all that it took."""

    message: JsonObject
    finish_reason: str
    queue_s: float


class ContextOverflow(Exception):
    """The prompt is beyond the model."""


class EpisodeSealed(Exception):
    """Nothing will be added to this episode any more: it was called off."""


class KeyRefused(Exception):
    """The episode's key isn't accepted (any more)."""


class Gateway(Protocol):
    """The gateway's word on episodes."""

    async def brief(self, episode_id: str) -> Brief:
        """What to run. Raises Transient, NotFound."""
        ...

    async def credential(self, episode_id: str) -> Credential:
        """A key for the episode's agent; may be asked for again. Raises Transient, EpisodeSealed."""
        ...


class Model(Protocol):
    """The episode's LLM, behind the gateway."""

    async def complete(self, call: ModelCall) -> Reply:
        """One reply. Raises ContextOverflow, EpisodeSealed, KeyRefused, Transient, Permanent."""
        ...


class Journal(Protocol):
    """What is written down of an episode. Every write may be repeated: the first one stands."""

    async def record_started(self, start: EpisodeStart, agent: str) -> None:
        """The agent is about to run."""
        ...

    async def record_ended(self, start: EpisodeStart, ending: Ending) -> None:
        """The agent's part is over."""
        ...

    async def record_elsewhere(self, start: EpisodeStart, ending: Ending) -> None:
        """The end of what was run elsewhere, which never starts here."""
        ...

    async def turns(self, episode_id: str) -> dict[int, TurnServed]:
        """Turns whose tools have answered, by number."""
        ...

    async def record_turn(self, episode_id: str, turn: int, served: TurnServed) -> None:
        """What a turn's tools answered."""
        ...


class Texts(Protocol):
    """Keeps texts above 64 KiB out of histories and events."""

    async def pack(self, text: str) -> Text:
        """The text itself, or a pointer to it."""
        ...

    async def unpack(self, text: Text) -> str:
        """The text again. Raises Permanent when its blob is gone."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One black box to run or to join. `attempt` counts from 1; a joined box keeps its own."""

    episode_id: str
    command: Sequence[str]
    attempt: int
    task_json: str
    credential: Credential
    budget_s: float


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a black box ended. `last_status`: of its last call (0: none, 599: no answer); `last_error`: its code."""

    stdout: str
    exit_code: int
    timed_out: bool
    agent_s: float
    calls: int
    last_status: int
    last_error: str


class Programs(Protocol):
    """Runs black boxes behind walls."""

    async def run(self, run: ProgramRun) -> ProgramEnd:
        """Run to the end. Cancelling kills the box. Raises Transient when the box was lost."""
        ...
