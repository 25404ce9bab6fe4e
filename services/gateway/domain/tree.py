"""The message tree of one episode: the fold of its recorded turns, and the longest match of a request in it.

It refuses to guess: what does not match exactly by canonical content becomes a branch of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from services.gateway.domain.messages import Message, match_key

ROOT = -1
TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class Span:
    """Sampled ids [start, end) came from this policy."""

    start: int
    end: int
    policy_step: int
    policy_digest: str


@dataclass(frozen=True, slots=True)
class CallMark:
    """What identifies the call that sampled a turn."""

    call_id: str
    idempotency_key: str
    digest: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a policy sampled; `ended`: the last id is the turn-end id, sampled by the engine itself."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[Span, ...]
    temperature: float
    top_p: float
    finish_reason: str
    ended: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One recorded call: context that it added below `parent_id`, then the sampled message."""

    mark: CallMark
    parent_id: int
    frame: str
    context: tuple[Message, ...]
    context_ids: tuple[int, ...]
    message: Message
    sample: Sample
    replaces: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    queue_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One message. Of context that was added in one go, the last node holds the ids, and the others none."""

    node_id: int
    parent_id: int
    frame: str
    key: str
    message: Message
    token_ids: tuple[int, ...]
    sample: Sample | None = None
    mark: CallMark | None = None
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """`node_id` is the deepest node whose path equals the first `consumed` messages of the request."""

    node_id: int
    consumed: int


@dataclass(slots=True)
class MessageTree:
    """Fold of `gateway.turns/<episode>`; changed only by `apply` and `close`."""

    nodes: list[TreeNode] = field(default_factory=list[TreeNode])
    closed: str = ""
    highest_attempt: int = 0
    _children: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def apply(self, turn: Turn) -> int:
        """Take a recorded turn in; answers the sampled node's id."""
        self.highest_attempt = max(self.highest_attempt, turn.mark.attempt)
        if turn.replaces is not None:
            old = self.nodes[turn.replaces]
            self.nodes[turn.replaces] = replace(
                old,
                message=turn.message,
                key=match_key(turn.message),
                token_ids=turn.sample.token_ids,
                sample=turn.sample,
                mark=turn.mark,
            )
            return turn.replaces
        parent = turn.parent_id
        for index, message in enumerate(turn.context):
            ids = turn.context_ids if index == len(turn.context) - 1 else ()
            parent = self._add(TreeNode(len(self.nodes), parent, turn.frame, match_key(message), message, ids))
        if turn.context_ids and not turn.context:
            # A request that ends with a turn of the policy adds only the template's own ids.
            empty = Message(role="assistant", content="")
            parent = self._add(TreeNode(len(self.nodes), parent, turn.frame, "", empty, turn.context_ids))
        node = TreeNode(
            len(self.nodes),
            parent,
            turn.frame,
            match_key(turn.message),
            turn.message,
            turn.sample.token_ids,
            turn.sample,
            turn.mark,
            turn.prompt_tokens,
        )
        return self._add(node)

    def settle(self, turn: Turn) -> Turn:
        """The turn as it is to be recorded now: context that is there already is not added a second time."""
        parent = turn.parent_id
        for index, message in enumerate(turn.context):
            ids = turn.context_ids if index == len(turn.context) - 1 else ()
            parent = self._same_child(parent, turn.frame, match_key(message), ids)
            if parent == ROOT:
                return turn
        return replace(turn, parent_id=parent, context=(), context_ids=()) if turn.context else turn

    def _same_child(self, parent: int, frame: str, key: str, ids: tuple[int, ...]) -> int:
        same = (self.nodes[child] for child in self._children.get(parent, ()))
        return next(
            (n.node_id for n in same if not n.sample and (n.frame, n.key, n.token_ids) == (frame, key, ids)), ROOT
        )

    def close(self, reason: str) -> None:
        """Nothing is accepted any more."""
        self.closed = reason or "sealed"

    def is_infra(self, node: TreeNode) -> bool:
        """Whether it was sampled in an attempt that was lost."""
        return node.mark is not None and node.mark.attempt < self.highest_attempt

    def path(self, node_id: int) -> list[TreeNode]:
        """Nodes from the root to this one."""
        nodes: list[TreeNode] = []
        while node_id != ROOT:
            nodes.append(self.nodes[node_id])
            node_id = self.nodes[node_id].parent_id
        return nodes[::-1]

    def path_ids(self, node_id: int) -> list[int]:
        """Token ids from the root to the end of this node."""
        return [token for node in self.path(node_id) for token in node.token_ids]

    def match(self, frame: str, messages: Sequence[Message], attempt: int) -> Match:
        """The longest chain that the messages continue; of equally long ones the newest that nobody went on from.

        Turns of a lower attempt are never continued.
        """
        keys = [match_key(message) for message in messages]
        best = Match(ROOT, 0)
        stack = [best]
        while stack:
            here = stack.pop()
            if self._rank(here, messages) > self._rank(best, messages):
                best = here
            if here.consumed == len(keys):
                continue
            for child_id in self._children.get(here.node_id, ()):
                child = self.nodes[child_id]
                lost = child.mark is not None and child.mark.attempt < attempt
                if child.frame == frame and not lost and child.key == keys[here.consumed]:
                    stack.append(Match(child_id, here.consumed + 1))
        return best

    def with_key(self, idempotency_key: str) -> TreeNode | None:
        """The turn that this key recorded."""
        return next((n for n in self.nodes if n.mark and n.mark.idempotency_key == idempotency_key), None)

    def with_digest(self, digest: str, attempt: int) -> list[TreeNode]:
        """Turns of this attempt that an equal request recorded, oldest first."""
        return [n for n in self.nodes if n.mark and n.mark.digest == digest and n.mark.attempt == attempt]

    def has_children(self, node_id: int) -> bool:
        """Whether something follows the node."""
        return bool(self._children.get(node_id))

    def turn_end_ids(self) -> set[int]:
        """Ids that ended a turn in this episode."""
        return {n.sample.token_ids[-1] for n in self.nodes if n.sample and n.sample.ended and n.sample.token_ids}

    def _rank(self, match: Match, messages: Sequence[Message]) -> tuple[int, bool, bool, int]:
        if match.node_id == ROOT:
            return (0, False, False, ROOT)
        node = self.nodes[match.node_id]
        same_reasoning = node.message.reasoning == messages[match.consumed - 1].reasoning
        return (match.consumed, same_reasoning, not self.has_children(match.node_id), match.node_id)

    def _add(self, node: TreeNode) -> int:
        self.nodes.append(node)
        self._children.setdefault(node.parent_id, []).append(node.node_id)
        return node.node_id
