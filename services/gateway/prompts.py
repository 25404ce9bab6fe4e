"""From a request to the ids that the engine gets: the longest matching chain, plus what the request adds to it.

It refuses to re-tokenise what was sampled: a chain is extended with proof, or a new branch is rendered in full.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from services.gateway.domain import bridge
from services.gateway.domain.calls import ChatCall
from services.gateway.domain.messages import Message
from services.gateway.domain.tree import ROOT, Match, MessageTree, TreeNode
from services.gateway.ports import ChatEngine, Rendered

_STAND_INS = ("0", "a")
"""Assistant texts with different ends: what their renders share at the end is the template's, not theirs."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids for the engine, and their place in the tree: `context` goes below `parent_id` and holds `context_ids`."""

    token_ids: tuple[int, ...]
    parent_id: int
    context: tuple[Message, ...]
    context_ids: tuple[int, ...]
    request_json: str
    room_tokens: int | None


class FirstRenders:
    """Renders of conversations that begin: the members of a group ask for the same one at about the same time.

    Kept for a run, since a run has one model, and only the newest few.
    """

    def __init__(self, engine: ChatEngine, capacity: int = 128) -> None:
        self._engine, self._capacity = engine, capacity
        self._kept: OrderedDict[tuple[str, str, int | None], asyncio.Task[Rendered]] = OrderedDict()

    async def render(self, engine_url: str, call: ChatCall, run_id: str) -> Rendered:
        """The whole request's ids, with generation prompt; rendered once for equal requests."""
        key = (run_id, call.digest, call.logprobs)
        task = self._kept.get(key)
        if task is None:
            task = asyncio.create_task(self._engine_render(engine_url, call))
            self._kept[key] = task
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        try:
            # Shielded: one client's leaving must not take the render from the others.
            return await asyncio.shield(task)
        except Exception:
            if self._kept.get(key) is task:
                del self._kept[key]
            raise

    async def _engine_render(self, engine_url: str, call: ChatCall) -> Rendered:
        return await self._engine.render(engine_url, call, call.messages, True)


class Prompts:
    """Prepares prompts with the help of one engine's render."""

    def __init__(self, engine: ChatEngine) -> None:
        self._engine = engine
        self._first = FirstRenders(engine)

    async def prepare(self, engine_url: str, call: ChatCall, tree: MessageTree, run_id: str) -> Prompt:
        """The prompt of a call. Raises what rendering raises."""
        match = tree.match(call.frame, call.messages, call.attempt)
        path = tree.path(match.node_id)
        if path and match.consumed == len(call.messages) and path[-1].sample is None and path[-1].token_ids:
            full = await self._engine.render(engine_url, call, call.messages, True)
            return _prompt(full, tree.path_ids(match.node_id), match.node_id, (), ())
        parent = _open_end(path)
        consumed = parent_consumed(match, path, parent)
        anchor = next((node for node in reversed(path) if node.sample), None)
        if anchor is None or parent is None:
            full = await self._first.render(engine_url, call, run_id)
            parent_id = parent.node_id if parent else ROOT
            return _prompt(full, full.token_ids, parent_id, call.messages[consumed:], full.token_ids)
        return await self._continue(engine_url, call, tree, (anchor, parent.node_id, consumed))

    async def _continue(
        self, engine_url: str, call: ChatCall, tree: MessageTree, at: tuple[TreeNode, int, int]
    ) -> Prompt:
        anchor, parent_id, consumed = at
        chain_ids = tree.path_ids(anchor.node_id)
        history = call.messages[: _messages_to(tree, anchor)]
        assert anchor.sample is not None
        full = await self._engine.render(engine_url, call, call.messages, True)
        ended = anchor.sample.ended
        if ended and bridge.starts_with(full.token_ids, chain_ids):
            added = full.token_ids[len(chain_ids) :]
            return _prompt(full, full.token_ids, parent_id, call.messages[consumed:], added)
        past = await self._engine.render(engine_url, call, history, False)
        turn_end = chain_ids[-1] if ended else await self._turn_end(engine_url, call, history, past)
        chain = bridge.Chain(chain_ids, ended)
        added = bridge.suffix(chain, full.token_ids, past.token_ids, turn_end) if turn_end is not None else None
        if added is None:
            return _prompt(full, full.token_ids, ROOT, call.messages, full.token_ids)
        return _prompt(full, (*chain_ids, *added), parent_id, call.messages[consumed:], added)

    async def _turn_end(
        self, engine_url: str, call: ChatCall, history: Sequence[Message], past: Rendered
    ) -> int | None:
        """The id with which the template closes an assistant's turn, when the engine did not sample it."""
        renders = [past.token_ids]
        for text in _STAND_INS:
            stand_in = (*history[:-1], Message(role="assistant", content=text))
            renders.append((await self._engine.render(engine_url, call, stand_in, False)).token_ids)
        closing = bridge.closing_ids(renders)
        return closing[0] if closing else None


def _open_end(path: Sequence[TreeNode]) -> TreeNode | None:
    # Context that holds ids ends in a generation prompt: nothing but a sampled turn can follow it.
    for node in reversed(path):
        if node.sample or not node.token_ids:
            return node
    return None


def parent_consumed(match: Match, path: Sequence[TreeNode], parent: TreeNode | None) -> int:
    """How many of the request's messages stand on the path up to the parent."""
    if parent is None:
        return 0
    return match.consumed - (len(path) - 1 - path.index(parent))


def _messages_to(tree: MessageTree, node: TreeNode) -> int:
    return len(tree.path(node.node_id))


def _prompt(
    full: Rendered,
    token_ids: Sequence[int],
    parent_id: int,
    context: Sequence[Message],
    context_ids: Sequence[int],
) -> Prompt:
    return Prompt(tuple(token_ids), parent_id, tuple(context), tuple(context_ids), full.request_json, full.room_tokens)
