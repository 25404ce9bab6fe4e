"""What the gateway needs from others, in its own words: engines, routes, and the failures they may answer with.

It refuses transport: adapters translate HTTP and gRPC into these.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.domain.calls import ChatCall, Sampling
from services.gateway.domain.messages import Message
from services.kernel.errors import Permanent, Refused, Transient


class ContextOverflow(Permanent):
    """The prompt leaves no room for a single new token."""


class EngineRefused(Permanent):
    """The engine can't do what the client asked for."""


class PolicyChanged(Transient):
    """The engine serves another policy by now, or is closed."""


class EngineUnavailable(Transient):
    """No engine answered in time."""


class EpisodeSealed(Refused):
    """The episode is over: nothing may be added to it."""


class TooBusy(Transient):
    """More calls in flight than this gateway takes."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Ids of a conversation. `request_json`: the engine's generate request, to be sent back as it is.

    `room_tokens`: the model's length; None when the engine did not say.
    """

    token_ids: tuple[int, ...]
    request_json: str
    room_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """A lease: one engine, one policy."""

    lease_id: str
    worker_id: str
    engine_url: str
    policy_step: int
    policy_digest: str


@dataclass(frozen=True, slots=True)
class Order:
    """One generation on ids. `request_id` names it at the engine; `logprobs`: alternatives beside the sampled id."""

    request_id: str
    token_ids: tuple[int, ...]
    request_json: str
    max_new_tokens: int
    stream: bool
    logprobs: int = 0
    # How many of the ids at the end were sampled by this call already.
    sampled_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids that the engine sampled. `finish_reason`: "" while it goes on, else stop, length or abort.

    `stopped_by` is the stop string that matched; `logprobs_json` holds the engine's own entries, for clients that ask.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str = ""
    stopped_by: str = ""
    cached_tokens: int = 0
    logprobs_json: str = ""

    @property
    def text_ids(self) -> tuple[int, ...]:
        """The ids that say something: the one by which the model ended its turn is a mark of the template."""
        ended = self.finish_reason == "stop" and not self.stopped_by
        return self.token_ids[:-1] if ended else self.token_ids


@dataclass(frozen=True, slots=True)
class Reply:
    """A derendered message; `logprobs_json` in the client's dialect, "" when it did not ask."""

    message: Message
    logprobs_json: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What a client gets of a message at once: text, reasoning, or parts of tool calls as dialect JSON."""

    content: str = ""
    reasoning: str = ""
    tool_calls_json: str = ""


class DeltaReader(Protocol):
    """Turns ids into deltas, in order; one for each streamed call. Any engine can do any step."""

    async def feed(self, engine_url: str, token_ids: Sequence[int], finish_reason: str) -> Delta:
        """The delta that these ids make; the last call has a finish reason. A step that failed may be tried again."""
        ...


class ChatEngine(Protocol):
    """The inference engine, behind URLs."""

    async def render(self, engine_url: str, call: ChatCall, messages: Sequence[Message], prompt: bool) -> Rendered:
        """Ids of the messages; with the generation prompt when `prompt`. Raises ContextOverflow, EngineRefused."""
        ...

    def generate(self, ticket: Ticket, order: Order) -> AsyncIterator[Piece]:
        """Sample. Raises PolicyChanged, EngineUnavailable, EngineRefused."""
        ...

    async def abort(self, ticket: Ticket, request_id: str) -> None:
        """End a generation: its iterator then gives what was sampled, with finish reason abort."""
        ...

    async def derender(self, engine_url: str, call: ChatCall, prompt_ids: Sequence[int], piece: Piece) -> Reply:
        """The message in the ids."""
        ...

    def reader(self, call: ChatCall, prompt_ids: Sequence[int]) -> DeltaReader:
        """A reader for a streamed call."""
        ...


@dataclass(frozen=True, slots=True)
class RouteOrder:
    """What the router needs to know of a call."""

    call_id: str
    episode_id: str
    run_id: str
    group_id: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    pinned_step: int | None
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """How a lease ended: done, refused, aborted or failed."""

    result: str
    cached_tokens: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    prefill_s: float = 0.0
    total_s: float = 0.0


class Routes(Protocol):
    """The router."""

    async def route(self, order: RouteOrder, timeout_s: float) -> Ticket:
        """Wait for an engine. Raises EngineUnavailable at the deadline."""
        ...

    async def complete(self, ticket: Ticket, served: Served) -> None:
        """End the lease; a failure to say so is the lease's deadline's business, not the caller's."""
        ...

    async def engine_urls(self, timeout_s: float) -> Sequence[str]:
        """Engines that can render, best first. Raises EngineUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """What a call needs to know of its episode."""

    episode_id: str
    run_id: str
    group_id: str
    pinned_step: int | None
    traceparent: str
    defaults: Sampling
