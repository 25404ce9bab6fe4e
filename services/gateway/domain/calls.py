"""One call of an agent: what it asks for, how it is recognised again, and what happens to a repeat.

It refuses to see HTTP or any dialect: entry points translate into `ChatCall`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from services.gateway.domain.messages import Message, canonical_json, to_fields
from services.gateway.domain.tree import TRUNCATED, MessageTree, TreeNode


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the client asked for; None: the run's default holds."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A request in neutral words.

    `options_json`: further fields of the chat dialect that the engine understands; `frame_json`: those of them, tools
    included, that change the prompt.
    """

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    tools_json: str = ""
    options_json: str = "{}"
    frame_json: str = ""
    idempotency_key: str = ""
    retry_count: int = 0
    attempt: int = 0
    stream: bool = False
    logprobs: int | None = None

    @property
    def frame(self) -> str:
        """Digest of what stands before all messages: chains of different frames share nothing."""
        return hashlib.sha256(self.frame_json.encode()).hexdigest()[:16] if self.frame_json else ""

    @property
    def digest(self) -> str:
        """Equal for requests that ask for the same; how the answer travels does not count."""
        parts = [
            [to_fields(message) for message in self.messages],
            self.tools_json,
            self.options_json,
            [self.sampling.temperature, self.sampling.top_p, self.sampling.max_tokens],
        ]
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LiveMark:
    """A call in flight; `abandoned`: its client is gone."""

    call_id: str
    idempotency_key: str
    digest: str
    attempt: int
    abandoned: bool
    # The truncated turn that it takes up again.
    continues: int = -1


class Kind(Enum):
    """What to do with a request."""

    FRESH = "fresh"
    JOIN = "join"
    REPLAY = "replay"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Decision:
    """`call_id` to join, or `node_id` to replay or to continue."""

    kind: Kind
    call_id: str = ""
    node_id: int = -1


def decide(
    call: ChatCall, live: Sequence[LiveMark], tree: MessageTree, undelivered: frozenset[str] = frozenset()
) -> Decision:
    """Whether a request is a repeat of an earlier call.

    By the same key, by a retry header, or by the same digest while the first call's client is gone. Equal calls without
    any of these are two samples. A truncated turn is taken up again where it stopped, so that a call has one sample.
    `undelivered`: ids of recorded calls whose answer nobody received.
    """
    if call.idempotency_key:
        joined = next((m for m in live if m.idempotency_key == call.idempotency_key), None)
        node = tree.with_key(call.idempotency_key)
        return _again(joined, node, tree)
    digest = call.digest
    equal_live = [m for m in live if m.digest == digest and m.attempt == call.attempt and not m.idempotency_key]
    equal_nodes = [n for n in tree.with_digest(digest, call.attempt) if n.mark and not n.mark.idempotency_key]
    taken_up = {m.continues for m in live}
    abandoned = next((m for m in equal_live if m.abandoned), None)
    orphan = next((n for n in equal_nodes if _unheard(n, undelivered) and n.node_id not in taken_up), None)
    if abandoned or orphan:
        return _again(abandoned, orphan, tree)
    if call.retry_count > 0:
        return _again(equal_live[-1] if equal_live else None, equal_nodes[-1] if equal_nodes else None, tree)
    return Decision(Kind.FRESH)


def _unheard(node: TreeNode, undelivered: frozenset[str]) -> bool:
    if node.sample is None or node.mark is None:
        return False
    return node.sample.finish_reason == TRUNCATED or node.mark.call_id in undelivered


def _again(live: LiveMark | None, node: TreeNode | None, tree: MessageTree) -> Decision:
    if live is not None:
        return Decision(Kind.JOIN, call_id=live.call_id)
    if node is None or node.sample is None:
        return Decision(Kind.FRESH)
    truncated = node.sample.finish_reason == TRUNCATED
    if truncated and not tree.has_children(node.node_id):
        return Decision(Kind.CONTINUE, node_id=node.node_id)
    return Decision(Kind.REPLAY, node_id=node.node_id)
