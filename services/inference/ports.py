"""What the sidecar needs from outside."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from services.inference.domain.engine import Seen, State
from services.inference.domain.kv import KvChange
from services.inference.domain.policies import Policy
from services.kernel.clock import Clock
from services.kernel.errors import Transient


class Busy(Transient):
    """The engine takes connections, but doesn't answer in time: not lost yet."""


class Engine(Protocol):
    """One vLLM server. Every method raises Transient while it can't be reached."""

    async def look(self) -> Seen:
        """The gate and the load. Raises Busy when no answer comes within a moment."""
        ...

    async def close(self, *, wait_s: float) -> int:
        """Let nothing in and end what runs, after `wait_s`, with its output so far. Number of calls ended."""
        ...

    async def load(self, folder: str, policy_digest: str) -> None:
        """Put a policy's weights in place of the present ones, its draft head too. Raises Refused when they don't fit.

        A draft head of another policy isn't used: the engine then doesn't speculate, which is warned of.
        """
        ...

    async def warm_up(self, tokens: int) -> None:
        """One call of that many tokens through an otherwise closed gate."""
        ...

    async def open(self, policy: Policy, boot_id: str) -> None:
        """Let calls for this policy in. Raises Transient where the engine is not in that boot any more."""
        ...


class Policies(Protocol):
    """Weights as local folders."""

    async def fetch(self, policy: Policy) -> str:
        """A complete local folder. Raises Transient, or Permanent when it is missing or corrupt."""
        ...

    async def prune(self, keep: frozenset[str]) -> None:
        """Free local copies, and the KV pool's blocks, of policies whose digest is not in `keep`."""
        ...


class Turns(Protocol):
    """Engines swap one after the other."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Held by one engine of the fleet on this machine at a time."""
        ...


class KvEvents(Protocol):
    """The engine's KV events."""

    def changes(self) -> AsyncIterator[KvChange]:
        """Changes in order, several events in one; a lost event shows as `cleared`."""
        ...


class Signals(Protocol):
    """Lossy reports to whoever listens."""

    async def report(self, state: State, seen: Seen | None) -> None:
        """Tell the worker's state."""
        ...

    async def blocks_changed(self, change: KvChange) -> int:
        """Tell what changed in the engine's cache; the signal's sequence number."""
        ...


@dataclass(frozen=True, slots=True)
class Outside:
    """All of it, as the application takes it."""

    engine: Engine
    policies: Policies
    signals: Signals
    turns: Turns
    clock: Clock
