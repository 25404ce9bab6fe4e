"""A run under chance, and beside it a second, naive account of the queue: the rules of docs/scheduling-rules.md.

Every decision is held against that account: it is written from the rules, with sets and sums, and shares no code with
the scheduler.
"""

import math
from dataclasses import dataclass, field
from random import Random

from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.books import balanced
from services.scheduler.domain.decisions import (
    AdmitItem,
    CloseBatch,
    Decision,
    DropItem,
    Revoke,
    SetWindow,
    TakeItem,
)


@dataclass
class Seen:
    """An item as the account knows it: members not ended yet, the score of those that ended well, its oldest policy."""

    group: str
    running: set[str] = field(default_factory=set)
    scores: list[float] = field(default_factory=list)
    oldest: int = 10**9
    position: int | None = None


class History:
    """Feeds one run and checks each decision as it comes."""

    def __init__(self, rig: Rig, chance: Random) -> None:
        self.rig, self.chance = rig, chance
        self.config = rig.config
        self.items: dict[str, Seen] = {}
        self.at: dict[int, Seen] = {}
        self.finished: list[int] = []
        self.consumed: list[int] = []
        self.swept = False
        self.taken: list[TakeItem] = []
        self.dropped: list[DropItem] = []
        self.entered_at: dict[int, int] = {}
        self.late_at: dict[int, int] = {}
        self._published_at: dict[int, int] = {}
        self.window = self.widest = rig.state.window_items
        self.handed = self.completed = self.published = 0
        self.filling = 0
        self.training: list[int] = []
        self.submitted = self.evaluations = 0

    # What can happen

    def submit(self) -> None:
        """A whole group, of any domain."""
        group = f"g{self.submitted}"
        self.submitted += 1
        domain = self.chance.choice(self.config.domains)[0]
        members = self.rig.members(group)
        self.items[group] = Seen(group, set(members))
        for member in members:
            self.feed(facts.Submitted(member, group, domain))

    def running(self) -> list[tuple[Seen, str]]:
        return [(item, member) for item in self.at.values() for member in sorted(item.running)]

    def end(self, how: str) -> None:
        """Somebody who runs ends: scored, failed or cancelled."""
        found = self.running()
        if not found:
            return
        item, member = found[self.chance.randrange(len(found))]
        if how != "score":
            self.over(member)
            fact = facts.Cancelled(member) if how == "cancel" else facts.Failed(member, 4, cancelled=False)
            self.feed(fact)
            return
        step = self.chance.randint(max(0, self.published - 1), self.published)
        parts = [facts.Scored(member, score := self.chance.choice((0.0, 0.5, 1.0)), "solved", b"")]
        parts += [facts.Sealed(member, b"", 3, step), facts.Finished(member, 1, 1.0)]
        self.chance.shuffle(parts)
        for fact in parts[:2]:
            self.feed(fact)
        item.scores.append(score)
        item.oldest = min(item.oldest, step)
        self.over(member)
        self.feed(parts[2])

    def train(self) -> None:
        """The oldest batch is trained and its policy published; now and then the policy is heard of first."""
        if self.training and self.published == self.completed and self.chance.random() < 0.3:
            self.published += 1
            self.feed(facts.PolicyPublished(self.published))
        elif self.training:
            step = self.training.pop(0)
            self.completed = step
            self.feed(facts.StepDone(step, ()))
            if self.published < step:
                self.published = step
                self.feed(facts.PolicyPublished(step))

    def evaluate(self) -> None:
        """An evaluation of the newest policy: until it is over, full batches wait."""
        self.evaluations += 1
        self.feed(facts.Submitted(f"v.{self.evaluations}", "", "a", pinned_step=self.published))

    def evaluated(self) -> None:
        """Evaluation under way comes to its end."""
        for episode_id in list(self.rig.state.evaluations):
            self.feed(facts.Failed(episode_id, 4, cancelled=False))

    def wait(self, seconds: float) -> None:
        self.rig.now_s += seconds
        self.feed(facts.Ticked())

    def stop(self) -> None:
        """The run's end sweeps the queue."""
        self.swept = True
        self.feed(facts.RunEnded("stopped"))
        assert not self.rig.state.queue
        assert not self.rig.state.filling
        assert self.rig.state.in_flight == 0

    # The account

    def over(self, member: str) -> None:
        """A member has ended, one way or another; with the last of them its item is finished."""
        item = self.items.get(member.rpartition(".")[0])
        if item is None:  # an evaluation
            return
        item.running.discard(member)
        if not item.running and item.position is not None and item.position not in self.finished:
            self.finished.append(item.position)

    def feed(self, fact: facts.Fact) -> None:
        for decision in self.rig.feed(fact):
            self.check(decision)
        state = self.rig.state
        assert (state.head, state.window_items) == (self.head, self.window)
        assert balanced(state)
        assert len(self.queue) == len(state.queue) <= self.config.queue_items
        running = sum(1 for position in self.queue if position not in self.finished)
        assert running == state.in_flight <= self.config.in_flight_items
        head = self.at.get(self.head)
        if self.config.selection in ("windowed_fifo", "strict_fifo") and head is not None and not self.swept:
            assert not (self.head in self.finished and self.dead(head)), "a dead head is dropped at once"
        if self.config.selection == "version_window" and not self.swept:
            ready = [position for position in self.queue if position in self.finished]
            oldest = min((self.oldest_of(position) for position in ready), default=self.handed)
            assert self.handed - oldest <= self.config.version_window_steps, "what left the window is dropped at once"

    @property
    def head(self) -> int:
        """The oldest position that was not consumed."""
        consumed = set(self.consumed)
        return next(position for position in range(len(consumed) + 1) if position not in consumed)

    @property
    def queue(self) -> list[int]:
        consumed = set(self.consumed)
        return [position for position in self.at if position not in consumed]

    def dead(self, item: Seen) -> bool:
        """Finished, and nothing in it can be trained."""
        needed = 2 if self.config.group_size > 1 else 1
        if len(item.scores) < needed:
            return True
        return self.config.group_size > 1 and max(item.scores) - min(item.scores) <= self.config.min_reward_spread

    def visible(self, position: int, step: int) -> bool:
        """Whether the policy lets a finished position be consumed into a batch trained from policy `step`."""
        match self.config.selection:
            case "windowed_fifo":
                return position <= self.head + self.window - 1
            case "strict_fifo":
                return position == self.head
            case _:
                return True

    def check(self, decision: Decision) -> None:
        match decision:
            case Revoke(episode_id, _):
                self.over(episode_id)
            case AdmitItem(group_id, position, _):
                self._admitted(self.items[group_id], position)
            case TakeItem():
                self._took(decision)
            case DropItem():
                self._dropped(decision)
            case CloseBatch(batch):
                assert self.filling == self.config.items_per_batch
                assert batch == self.handed + 1
                assert batch - 1 - self.config.lookahead_steps <= self.completed, "S holds the hand-over back"
                self.handed, self.filling = batch, 0
                self.training.append(batch)
            case SetWindow(window_items):
                assert self.filling == 0
                self.window, self.widest = window_items, max(self.widest, window_items)
            case _:
                pass

    def _admitted(self, item: Seen, position: int) -> None:
        config = self.config
        assert not self.swept
        assert position == len(self.at), "positions run on"
        trainable = [p for p in self.queue if not (p in self.finished and self.dead(self.at[p]))]
        batch = self.handed + 1 + (self.filling + len(trainable)) // config.items_per_batch
        assert batch <= self.published + 1 + config.lookahead_steps, "S holds admission back"
        if config.end_steps:
            assert batch <= config.end_steps
        if config.mode == "cohort":
            assert position // config.queue_items == self.head // config.queue_items
        item.position = position
        self.at[position] = item
        self.entered_at[position] = len(self.consumed)
        # A full batch that evaluation holds back is as good as handed over.
        self.late_at[position] = self.handed + (self.filling == config.items_per_batch) - self.published
        self._published_at[position] = self.published

    def published_at(self, position: int) -> int:
        """The newest policy when the item was admitted: the oldest that it can have sampled from."""
        return self._published_at[position]

    def _took(self, decision: TakeItem) -> None:
        item, step = self.at[decision.position], decision.batch - 1
        assert not self.swept
        assert decision.batch == self.handed + 1
        assert decision.distance == decision.position - self.head >= 0
        assert not self.dead(item)
        self._consumable(decision.position, step)
        staleness = step - item.oldest
        if self.config.max_staleness_steps:
            assert staleness <= self.config.max_staleness_steps
        if self.config.selection == "version_window":
            assert staleness <= self.config.version_window_steps
        if self.config.selection in ("windowed_fifo", "strict_fifo"):
            assert decision.distance <= self.window - 1
        self.taken.append(decision)
        self.filling += 1
        assert self.filling <= self.config.items_per_batch
        self._consumed(decision.position)

    def _dropped(self, decision: DropItem) -> None:
        self.dropped.append(decision)
        if decision.position is None:
            return
        if decision.reason == "run_ended":
            if decision.position not in self.consumed:  # taken into a batch that will never be full
                self.consumed.append(decision.position)
            self.filling = 0
            return
        item, step = self.at[decision.position], self.handed
        if decision.reason == "too_stale":
            bounds = [self.config.max_staleness_steps or 10**9]
            if self.config.selection == "version_window":
                bounds.append(self.config.version_window_steps)
                assert decision.position in self.finished
            else:
                self._consumable(decision.position, step)
            assert step - item.oldest > min(bounds)
        else:
            assert self.dead(item)
            self._consumable(decision.position, step)
        self._consumed(decision.position)

    def _consumable(self, position: int, step: int) -> None:
        """Finished, not hidden, and nobody whom the policy would have preferred was passed over."""
        assert position in self.finished
        assert self.visible(position, step), "beyond the window nothing is taken, however long it has been ready"
        consumed = set(self.consumed)
        ready = [p for p in self.finished if p not in consumed and self.visible(p, step)]
        match self.config.selection:
            case "windowed_fifo" | "strict_fifo":
                assert position == min(ready)
            case "greedy":
                assert position == ready[0], "first finished, first taken"
            case _:
                fresh = [p for p in ready if step - self.oldest_of(p) <= self.config.version_window_steps]
                assert position not in fresh or position == fresh[0]

    def oldest_of(self, position: int) -> int:
        item = self.at[position]
        return item.oldest if item.scores else 0

    def _consumed(self, position: int) -> None:
        assert position not in self.consumed, "nothing is consumed twice"
        lag = len(self.consumed) - self.entered_at[position]
        if self.config.mode == "cohort":
            assert lag <= self.config.queue_items - 1
        elif self.config.selection in ("windowed_fifo", "strict_fifo"):
            assert lag <= self.config.queue_items + self.widest - 2
        self.consumed.append(position)

    def staleness_bound(self, position: int) -> int:
        """DESIGN 5 for rolling mode: ceil((N + W - 2) / P), plus batches handed over and not yet published then."""
        config = self.config
        steps = math.ceil((config.queue_items + self.widest - 2) / config.items_per_batch)
        return steps + self.late_at[position]


ACTIONS = ("score",) * 12 + ("submit",) * 3 + ("train",) * 3 + ("fail", "cancel", "wait", "evaluate", "evaluated")


def act(history: History, action: str) -> None:
    """One thing happens."""
    match action:
        case "submit":
            history.submit()
        case "train":
            history.train()
        case "evaluate":
            history.evaluate()
        case "evaluated":
            history.evaluated()
        case "wait":
            history.wait(history.chance.choice((1.0, 25.0)))
        case how:
            history.end(how)


def random_history(seed: int, events: int = 60, **fixed: object) -> History:
    """A run with numbers and events drawn from `seed`; `fixed` overrides numbers."""
    chance = Random(seed)
    queue_items = chance.randint(1, 10)
    changes: dict[str, object] = {
        "domains": (("a", 2.0), ("b", 1.0)),
        "group_size": chance.randint(1, 3),
        "queue_items": queue_items,
        "window_items": chance.randint(1, queue_items),
        "in_flight_items": chance.randint(1, queue_items),
        "items_per_batch": chance.randint(1, 4),
        "lookahead_steps": chance.randint(0, 4),
        "max_staleness_steps": chance.choice((0, 0, 2)),
        "version_window_steps": 0,
        "end_steps": chance.choice((0, 0, 3)),
        **fixed,
    }
    if changes.get("selection") == "version_window" and "version_window_steps" not in fixed:
        changes["version_window_steps"] = chance.randint(0, 3)
    if fixed.get("window_items") == "N":
        changes["window_items"] = changes["queue_items"]
    history = History(Rig(**changes), chance)
    for _ in range(chance.randint(0, 12)):
        history.submit()
    for _ in range(events):
        act(history, chance.choice(ACTIONS))
    return history
