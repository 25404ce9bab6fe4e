"""What the trainer's own events say of a run: its spec, its last step, its checkpoint, its policies.

It refuses to guess: a run is only what its two streams say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from forgerl.common.v1.run_pb2 import RunSpec
from forgerl.events.v1.trainer_pb2 import PolicyPublished, StepCompleted, StepFailed
from forgerl.trainer.v1.run_record_pb2 import PolicyPinned, RunFreed, RunTaken
from google.protobuf.message import Message

from services.trainer.domain.merging import FREE_CALLS, Pace

KEPT_POLICIES = 4
"""Newest policies that stay loadable at least: engines load the newest, and may be on the way to one just before."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A fold of `trainer.run/<run>` and `trainer.policy/<run>`. Versions are those of the last events seen."""

    run_id: str
    record_version: int
    policy_version: int
    spec: RunSpec | None
    freed: bool
    failure: str
    steps: tuple[StepCompleted, ...]
    policies: tuple[PolicyPublished, ...]
    pinned_steps: frozenset[int] = frozenset()
    pace: Pace = FREE_CALLS

    @property
    def step(self) -> int:
        """The last completed step; 0 before the first."""
        return self.steps[-1].step if self.steps else 0

    @property
    def started_at(self) -> datetime | None:
        """When the first policy was published."""
        return self.policies[0].published_at.ToDatetime() if self.policies else None


def fold(run_id: str, records: Sequence[Message], published: Sequence[Message]) -> RunState:
    """The state after the events of both streams."""
    spec = next((m.spec for m in reversed(records) if isinstance(m, RunTaken)), None)
    failures = [m.detail for m in published if isinstance(m, StepFailed)]
    return RunState(
        run_id,
        len(records),
        len(published),
        spec,
        any(isinstance(m, RunFreed) for m in records),
        failures[-1] if failures else "",
        tuple(m for m in published if isinstance(m, StepCompleted)),
        tuple(m for m in published if isinstance(m, PolicyPublished)),
        frozenset(m.step for m in records if isinstance(m, PolicyPinned)),
        _pace(records),
    )


def _pace(records: Sequence[Message]) -> Pace:
    recorded = [m.pace for m in records if isinstance(m, RunTaken) and m.HasField("pace")]
    return Pace(recorded[-1].operation_s, recorded[-1].call_s) if recorded else FREE_CALLS


def kept_checkpoints(state: RunState) -> set[str]:
    """URIs of the checkpoints that stay."""
    keep = max(1, state.spec.training.keep_checkpoints if state.spec else 1)
    return {step.checkpoint_uri for step in state.steps[-keep:]}


def kept_policies(state: RunState) -> dict[int, str]:
    """Steps whose policies can be loaded, and why: the first, the newest (every kept checkpoint's too), the pinned.

    The first is what a run begins with anew; pinned are those that a run ended with and is evaluated on.
    """
    if state.freed:
        return {}
    steps = [policy.step for policy in state.policies]
    kept = dict.fromkeys(sorted(state.pinned_steps & set(steps)), "pinned")
    kept |= dict.fromkeys(steps[-_newest(state) :], "newest")
    return kept | dict.fromkeys(steps[:1], "first")


def freed_policies(state: RunState) -> tuple[PolicyPublished, ...]:
    """Policies that the newest publications pushed out; a few, so that a crash between two cleanings leaves none."""
    newest, kept = _newest(state), kept_policies(state)
    return tuple(policy for policy in state.policies[:-newest][-newest:] if policy.step not in kept)


def _newest(state: RunState) -> int:
    return max(KEPT_POLICIES, state.spec.training.keep_checkpoints if state.spec else 0)
