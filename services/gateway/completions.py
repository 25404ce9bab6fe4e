"""One LLM call of an agent, from request to recorded turn.

Joins or replays repeats, generates over as many engines and policies as it takes, and answers only what is recorded. It
refuses to record two samples of one call, and to lose what was sampled when the client goes away.
"""

import asyncio
from dataclasses import dataclass, replace

from opentelemetry.trace import Tracer

from services.gateway.domain.calls import ChatCall, Decision, Kind, LiveMark, Sampling, decide
from services.gateway.domain.tree import TRUNCATED, CallMark, TreeNode, Turn
from services.gateway.generating import Generating, Outcome
from services.gateway.live import Answer, LiveCall
from services.gateway.ports import EpisodeFacts, TooBusy
from services.gateway.sessions import Session, Sessions
from services.kernel.clock import Clock, Ids
from services.kernel.errors import InvalidInput
from services.kernel.logs import get_logger
from services.kernel.telemetry import use_parent


@dataclass(frozen=True, slots=True)
class Limits:
    """`call_timeout_s`: a call's own deadline; `calls`: in flight at once in this process."""

    call_timeout_s: float = 300.0
    calls: int = 512


@dataclass(frozen=True, slots=True)
class Tools:
    """Time, ids and traces."""

    clock: Clock
    ids: Ids
    tracer: Tracer


class Completions:
    """The agents' front door, dialects aside."""

    def __init__(self, sessions: Sessions, generating: Generating, tools: Tools, limits: Limits) -> None:
        self._sessions, self._generating, self._limits = sessions, generating, limits
        self._clock, self._ids, self._tracer = tools.clock, tools.ids, tools.tracer
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, episode_id: str, call: ChatCall, traceparent: str = "") -> LiveCall:
        """The call in flight, or already over, that answers the request; one client is attached to it.

        Raises EpisodeSealed, NotFound, TooBusy, InvalidInput.
        """
        session = await self._sessions.get(episode_id)
        while True:
            marks = [live.as_mark() for live in session.live.values()]
            decision = decide(call, marks, session.tree, frozenset(session.undelivered))
            if decision.kind is not Kind.JOIN:
                break
            live = session.live[decision.call_id]
            _same_request(live.mark.digest, call)
            if not live.gone.is_set():
                live.attach()
                return live
            # It is being ended for want of a client: what it leaves behind decides.
            await live.ended.wait()
        if decision.kind is Kind.REPLAY:
            live = _replayed(session, decision.node_id, call)
            live.created_s = int(self._clock.now().timestamp())
            return live
        return self._start(session, call, decision, traceparent)

    def leave(self, episode_id: str, live: LiveCall, delivered: bool) -> None:
        """A client is done with a call; `delivered`: it got everything."""
        live.detach()
        session = self._sessions.peek(episode_id)
        if session is None or live.answer is None:
            return
        if delivered:
            session.undelivered.discard(live.mark.call_id)
        elif live.clients == 0:
            session.undelivered.add(live.mark.call_id)

    async def drain(self) -> None:
        """Wait for the calls in flight."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _start(self, session: Session, call: ChatCall, decision: Decision, traceparent: str) -> LiveCall:
        if len(self._tasks) >= self._limits.calls:
            raise TooBusy(f"{self._limits.calls} calls are in flight, as many as this gateway takes")
        continued = session.tree.nodes[decision.node_id] if decision.kind is Kind.CONTINUE else None
        if continued is not None and continued.mark is not None:
            _same_request(continued.mark.digest, call)
        call_id = continued.mark.call_id if continued and continued.mark else self._ids.new("call")
        mark = LiveMark(call_id, call.idempotency_key, call.digest, call.attempt, False, decision.node_id)
        live = LiveCall(mark, replace(call, sampling=_with_defaults(call, session.facts)))
        live.created_s = int(self._clock.now().timestamp())
        live.attach()
        session.live[call_id] = live
        task = asyncio.create_task(self._serve(session, live, continued, traceparent), name=call_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    async def _serve(self, session: Session, live: LiveCall, continued: TreeNode | None, traceparent: str) -> None:
        try:
            with use_parent(traceparent or session.facts.traceparent):
                with self._tracer.start_as_current_span("gateway.call") as span:
                    span.set_attributes({"episode_id": session.facts.episode_id, "call_id": live.mark.call_id})
                    await self._run(session, live, continued)
                    if live.answer:
                        span.set_attribute("completion_tokens", live.answer.completion_tokens)
        except Exception as error:
            get_logger().info("call.failed", call_id=live.mark.call_id, error=f"{type(error).__name__}: {error}")
            live.fail(error)
        finally:
            session.live.pop(live.mark.call_id, None)

    async def _run(self, session: Session, live: LiveCall, continued: TreeNode | None) -> None:
        begun_s = self._clock.monotonic()
        outcome = await self._generating.run(session, live, continued, begun_s + self._limits.call_timeout_s)
        if outcome is None:
            live.fail(ConnectionAbortedError("the client went away before anything was sampled"))
            return
        turn = _turn(live, outcome, continued, self._clock.monotonic() - begun_s)
        node_id = await self._sessions.record(session, turn)
        node = session.tree.nodes[node_id]
        if live.gone.is_set() and node.sample and node.sample.finish_reason != TRUNCATED:
            session.undelivered.add(live.mark.call_id)
        live.finish(_answer(node, live.queue_s, outcome.cached_tokens, outcome.logprobs_json))


def _with_defaults(call: ChatCall, facts: EpisodeFacts) -> Sampling:
    given, run = call.sampling, facts.defaults
    return replace(
        given,
        temperature=run.temperature if given.temperature is None else given.temperature,
        top_p=run.top_p if given.top_p is None else given.top_p,
        max_tokens=run.max_tokens if given.max_tokens is None else given.max_tokens,
    )


def _same_request(digest: str, call: ChatCall) -> None:
    if call.idempotency_key and digest != call.digest:
        raise InvalidInput("idempotency-key", call.idempotency_key, "a key that no other request has used")


def _replayed(session: Session, node_id: int, call: ChatCall) -> LiveCall:
    node = session.tree.nodes[node_id]
    assert node.mark is not None
    _same_request(node.mark.digest, call)
    mark = node.mark
    live = LiveCall(LiveMark(mark.call_id, mark.idempotency_key, mark.digest, mark.attempt, False), call)
    live.attach()
    live.finish(_answer(node, 0.0, 0, ""))
    return live


def _turn(live: LiveCall, outcome: Outcome, continued: TreeNode | None, total_s: float) -> Turn:
    mark, prompt = live.mark, outcome.prompt
    return Turn(
        mark=CallMark(mark.call_id, mark.idempotency_key, mark.digest, mark.attempt),
        parent_id=continued.parent_id if continued else prompt.parent_id,
        frame=live.call.frame,
        context=() if continued else prompt.context,
        context_ids=() if continued else prompt.context_ids,
        message=outcome.message,
        sample=outcome.sample,
        replaces=continued.node_id if continued else None,
        prompt_tokens=len(prompt.token_ids),
        cached_tokens=outcome.cached_tokens,
        queue_s=live.queue_s,
        total_s=total_s,
    )


def _answer(node: TreeNode, queue_s: float, cached_tokens: int, logprobs_json: str) -> Answer:
    assert node.sample is not None and node.mark is not None
    reason = node.sample.finish_reason
    return Answer(
        call_id=node.mark.call_id,
        message=node.message,
        finish_reason="length" if reason == TRUNCATED else reason,
        prompt_tokens=node.prompt_tokens,
        completion_tokens=len(node.token_ids),
        cached_tokens=cached_tokens,
        queue_s=queue_s,
        logprobs_json=logprobs_json,
    )
