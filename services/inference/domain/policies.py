"""Which policy an engine should serve: the newest of the run that was active last. Pure; knows no engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Policy:
    """One published set of weights."""

    run_id: str
    step: int
    digest: str
    uri: str


@dataclass(frozen=True, slots=True)
class PolicyBook:
    """Newest policy and last activity of every run."""

    newest: Mapping[str, Policy] = field(default_factory=dict[str, Policy])
    active_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])

    def note(self, policy: Policy, at: datetime) -> "PolicyBook":
        """A policy was published at `at`. An older step than the known one changes nothing."""
        known = self.newest.get(policy.run_id)
        if known is not None and known.step >= policy.step:
            return self
        book = replace(self, newest={**self.newest, policy.run_id: policy})
        return book.take_up(policy.run_id, at)

    def take_up(self, run_id: str, at: datetime) -> "PolicyBook":
        """The run was active at `at`."""
        latest = max(at, self.active_at.get(run_id, at))
        return replace(self, active_at={**self.active_at, run_id: latest})

    def forget(self, run_id: str) -> "PolicyBook":
        """The run and its policies are gone."""
        newest = {run: policy for run, policy in self.newest.items() if run != run_id}
        return PolicyBook(newest, {run: at for run, at in self.active_at.items() if run != run_id})

    def desired(self) -> Policy | None:
        """The policy to serve; None before the first."""
        if not self.newest:
            return None
        return self.newest[max(self.newest, key=lambda run: (self.active_at[run], run))]
