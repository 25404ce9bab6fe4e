"""An episode as the scheduler knows it, an item made of episodes, and who of them may be trained.

Decided here: a member is terminal when it is finished, sealed and scored, in whichever order the three became
known, or as soon as it failed, was cancelled or revoked, or could not be scored. An episode that sampled no
token can't be trained and has no token-averaged reward, so it is not eligible (`no_tokens`). Refuses to know
where an item stands in the queue.
"""

from dataclasses import dataclass, field

from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.facts import Finished, Scored, Sealed, Submitted

GRADER_ERROR = "grader_error"
NO_TOKENS = "no_tokens"


@dataclass(slots=True, eq=False)
class Member:
    """An episode. `ended_by` is why it will never be trained, or empty; `admission_events` were published of it."""

    submission: Submitted
    submitted_event_id: str
    item: "Item | None" = field(default=None, repr=False)
    admitted: bool = False
    admission_events: int = 0
    finished: Finished | None = None
    sealed: Sealed | None = None
    scored: Scored | None = None
    ended_by: str = ""

    @property
    def episode_id(self) -> str:
        """Its id."""
        return self.submission.episode_id

    @property
    def terminal(self) -> bool:
        """Nothing is waited for any more."""
        return bool(self.ended_by) or not (self.finished is None or self.sealed is None or self.scored is None)

    @property
    def why_not(self) -> str:
        """Why a terminal member is not eligible; empty when it is."""
        if self.ended_by:
            return self.ended_by
        return "" if self.sealed is not None and self.sealed.sampled_tokens > 0 else NO_TOKENS

    @property
    def partial(self) -> bool:
        """Its tokens come from more than one policy: it went on across an update of the weights."""
        return self.sealed is not None and self.sealed.last_policy_step > self.sealed.first_policy_step

    @property
    def first_policy_step(self) -> int:
        """The oldest policy that sampled a token of it; 0 when it is not sealed."""
        return self.sealed.first_policy_step if self.sealed else 0


@dataclass(slots=True, eq=False)
class Item:
    """A group; closed at `size` members. `doom` is why it will be dropped, known once every member is terminal.

    `position` and `distance` (from the head, when taken) count items.
    """

    group_id: str
    domain: str
    size: int
    members: list[Member] = field(default_factory=list[Member])
    terminal_members: int = 0
    position: int | None = None
    admitted_at_s: float = 0.0
    # From admission to the last member's end; known once it is finished.
    duration_s: float = 0.0
    distance: int = 0
    # How many items had left the queue when this one entered it.
    entered_at: int = 0
    finished: bool = False
    doom: str = ""

    @property
    def closed(self) -> bool:
        """No more members are taken."""
        return len(self.members) >= self.size

    @property
    def all_terminal(self) -> bool:
        """Closed, and nobody is waited for."""
        return self.closed and self.terminal_members >= len(self.members)

    @property
    def eligible(self) -> list[Member]:
        """Members that count for the group and are trained."""
        return [member for member in self.members if member.terminal and not member.why_not]

    @property
    def oldest_step(self) -> int:
        """The oldest policy step that an eligible member sampled from."""
        return min((member.first_policy_step for member in self.eligible), default=0)


def doom_of(item: Item, config: RunConfig) -> str:
    """Why an item whose members are all terminal can't be trained (DESIGN 10), or empty.

    When nobody is eligible for one common reason, deadline or cancelled, that is the item's reason too.
    """
    eligible = item.eligible
    if not eligible:
        reasons = {member.why_not for member in item.members}
        common = reasons.pop() if len(reasons) == 1 else ""
        return common if common in ("deadline", "cancelled") else "too_few_eligible"
    if len(eligible) < config.eligible_needed:
        return "too_few_eligible"
    performance = [member.scored.performance for member in eligible if member.scored is not None]
    if config.group_size > 1 and max(performance) - min(performance) <= config.min_reward_spread:
        return "no_spread"
    return ""
