"""What a call has sampled so far, over one or more engines and policies.

It refuses ids without a log-probability and ids whose policy is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.gateway.domain.tree import Sample, Span


class MissingLogprobs(ValueError):
    """The engine answered ids without their log-probabilities."""


@dataclass(slots=True)
class Generation:
    """Grows segment by segment; ids of one policy that follow each other form one span."""

    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    spans: list[Span] = field(default_factory=list[Span])
    finish_reason: str = ""
    ended: bool = False
    cached_tokens: int = 0
    queue_s: float = 0.0

    def extend(self, token_ids: Sequence[int], logprobs: Sequence[float], policy_step: int, digest: str) -> None:
        """Add ids that this policy sampled. Raises MissingLogprobs."""
        if len(token_ids) != len(logprobs):
            raise MissingLogprobs(f"{len(logprobs)} log-probabilities for {len(token_ids)} ids")
        if not token_ids:
            return
        start, end = len(self.token_ids), len(self.token_ids) + len(token_ids)
        last = self.spans[-1] if self.spans else None
        if last and (last.policy_step, last.policy_digest) == (policy_step, digest):
            self.spans[-1] = Span(last.start, end, policy_step, digest)
        else:
            self.spans.append(Span(start, end, policy_step, digest))
        self.token_ids.extend(token_ids)
        self.logprobs.extend(logprobs)

    def resume(self, sample: Sample) -> None:
        """Begin with what an interrupted call had sampled."""
        self.token_ids.extend(sample.token_ids)
        self.logprobs.extend(sample.logprobs)
        self.spans.extend(sample.spans)

    def sample(self, temperature: float, top_p: float, finish_reason: str) -> Sample:
        """The finished sample."""
        return Sample(
            tuple(self.token_ids),
            tuple(self.logprobs),
            tuple(self.spans),
            temperature,
            top_p,
            finish_reason,
            self.ended,
        )
