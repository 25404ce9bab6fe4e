"""What is seen of an engine, and what follows from it. Pure."""

from dataclasses import dataclass
from enum import Enum

from services.inference.domain.policies import Policy


class State(Enum):
    """An engine as others see it."""

    STARTING = "starting"
    READY = "ready"
    SWAPPING = "swapping"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Gate:
    """The engine's door, which alone knows what is loaded: an engine that starts anew forgets it and is closed.

    `boot_id` is another after every start of the engine; `policy_digest` is empty before the first opening.
    """

    boot_id: str
    is_open: bool
    run_id: str
    policy_step: int
    policy_digest: str
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine says of its work."""

    running: int = 0
    waiting: int = 0
    # Share of the KV memory in use, 0 to 1.
    kv_usage: float = 0.0
    prompt_tokens_total: int = 0
    cached_prompt_tokens_total: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What doesn't change while an engine runs. Tokens; 0 where unknown."""

    block_tokens: int = 0
    max_model_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the engine."""

    gate: Gate
    load: Load
    shape: Shape


def serves(seen: Seen | None, policy: Policy | None) -> bool:
    """Whether the engine takes calls for `policy`."""
    if seen is None or policy is None:
        return False
    served = (seen.gate.run_id, seen.gate.policy_step, seen.gate.policy_digest)
    return seen.gate.is_open and served == (policy.run_id, policy.step, policy.digest)


def state_of(seen: Seen | None, *, swapping: bool, draining: bool) -> State:
    """The state to report."""
    if seen is None:
        return State.STARTING
    if draining:
        return State.DRAINING
    if swapping:
        return State.SWAPPING
    return State.READY if seen.gate.is_open else State.STARTING
