"""Sampling one call: prompt, routes, engines, and the message in the ids, until it is done, truncated or out of time.

It refuses to start over: what one engine sampled before it was interrupted is the prompt of the next.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import stamina

from services.gateway.domain.generation import Generation
from services.gateway.domain.messages import Message
from services.gateway.domain.tree import TRUNCATED, Sample, TreeNode
from services.gateway.live import LiveCall
from services.gateway.ports import (
    ChatEngine,
    ContextOverflow,
    EngineUnavailable,
    Order,
    Piece,
    PolicyChanged,
    RouteOrder,
    Routes,
    Served,
    Ticket,
)
from services.gateway.prompts import Prompt, Prompts
from services.gateway.sessions import Session
from services.gateway.streaming import Feeder
from services.kernel.clock import Clock, Ids
from services.kernel.errors import ForgeError
from services.kernel.logs import get_logger

T = TypeVar("T")
_ABORT_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was sampled, and where it belongs."""

    prompt: Prompt
    sample: Sample
    message: Message
    cached_tokens: int
    logprobs_json: str


@dataclass(slots=True)
class _Job:
    session: Session
    live: LiveCall
    continued: TreeNode | None
    deadline_s: float
    generation: Generation = field(default_factory=Generation)
    prompt: Prompt | None = None
    message: Message | None = None
    feeder: Feeder | None = None
    avoid: tuple[str, ...] = ()
    stopped_by: str = ""
    # The engine has answered something in this segment.
    heard: bool = False
    entries: list[str] = field(default_factory=list[str])
    logprobs_json: str = ""


class Generating:
    """Runs calls."""

    def __init__(self, engine: ChatEngine, routes: Routes, clock: Clock, ids: Ids) -> None:
        self._engine, self._routes, self._clock, self._ids = engine, routes, clock, ids
        self._prompts = Prompts(engine)

    async def run(
        self, session: Session, live: LiveCall, continued: TreeNode | None, deadline_s: float
    ) -> Outcome | None:
        """Sample until the end; None when the client went before anything was sampled.

        Raises ContextOverflow, EngineRefused, and EngineUnavailable at the deadline (a time of the monotonic clock).
        """
        job = _Job(session, live, continued, deadline_s)
        if continued is not None and continued.sample is not None:
            job.generation.resume(continued.sample)
        work = asyncio.create_task(self._work(job))
        gone = asyncio.create_task(live.gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not job.generation.finish_reason:
                await self._stop(job, work)
            if not work.cancelled():
                await work
        except ForgeError:
            if not (live.gone.is_set() and job.generation.token_ids):
                raise
        finally:
            gone.cancel()
            work.cancel()
            if job.feeder is not None:
                job.feeder.stop()
        return self._outcome(job)

    async def _work(self, job: _Job) -> None:
        job.prompt = await self._prepare(job)
        await self._sample(job, job.prompt)
        await self._read(job, job.prompt)

    async def _prepare(self, job: _Job) -> Prompt:
        call, tree, run_id = job.live.call, job.session.tree, job.session.facts.run_id
        prompt = await self._steady(job, lambda url: self._prompts.prepare(url, call, tree, run_id))
        if job.continued is not None:
            ids = tuple(tree.path_ids(job.continued.parent_id))
            prompt = Prompt(ids, job.continued.parent_id, (), (), prompt.request_json, prompt.room_tokens)
        if prompt.room_tokens is not None and len(prompt.token_ids) >= prompt.room_tokens:
            raise ContextOverflow(
                f"This model's maximum context length is {prompt.room_tokens} tokens. "
                f"However, your messages resulted in {len(prompt.token_ids)} tokens."
            )
        return prompt

    async def _sample(self, job: _Job, prompt: Prompt) -> None:
        call, generation = job.live.call, job.generation
        room = prompt.room_tokens - len(prompt.token_ids) if prompt.room_tokens is not None else None
        limits = [limit for limit in (call.sampling.max_tokens, room) if limit is not None]
        allowed = min(limits) if limits else 1 << 20
        if call.stream:
            reader = self._engine.reader(call, prompt.token_ids)
            job.feeder = Feeder(lambda ids, end: self._steady(job, lambda url: reader.feed(url, ids, end)), job.live)
            await job.feeder.add(generation.token_ids)
        if len(generation.token_ids) >= allowed:
            generation.finish_reason = "length"
        while not generation.finish_reason:
            async for attempt in self._retries(job):
                with attempt:
                    await self._segment(job, prompt, allowed - len(generation.token_ids))

    async def _segment(self, job: _Job, prompt: Prompt, max_new_tokens: int) -> None:
        live, call, facts = job.live, job.live.call, job.session.facts
        ids = (*prompt.token_ids, *job.generation.token_ids)
        asked_s = self._clock.monotonic()
        order = RouteOrder(
            live.mark.call_id,
            facts.episode_id,
            facts.run_id,
            facts.group_id,
            ids,
            max_new_tokens,
            facts.pinned_step,
            job.avoid,
        )
        ticket = await self._routes.route(order, job.deadline_s - asked_s)
        live.begin(self._clock.monotonic() - asked_s)
        request_id = self._ids.new("gen")
        generate = Order(
            request_id=request_id,
            token_ids=ids,
            request_json=prompt.request_json,
            max_new_tokens=max_new_tokens,
            stream=call.stream,
            logprobs=call.logprobs or 0,
            sampled_tokens=len(job.generation.token_ids),
        )
        live.ticket, live.request_id, job.heard = ticket, request_id, False
        try:
            await self._on_engine(job, ticket, self._engine.generate(ticket, generate), len(ids))
        finally:
            live.ticket = None

    async def _on_engine(self, job: _Job, ticket: Ticket, pieces: AsyncIterator[Piece], prompt_tokens: int) -> None:
        begun_s, before = self._clock.monotonic(), len(job.generation.token_ids)
        result, first_s, cached = "failed", 0.0, 0
        try:
            reason = ""
            async for piece in pieces:
                first_s, job.heard = first_s or self._clock.monotonic() - begun_s, True
                cached = max(cached, piece.cached_tokens)
                await self._take(job, ticket, piece)
                reason = piece.finish_reason or reason
            if not reason:
                raise EngineUnavailable(f"engine {ticket.engine_url}: the answer broke off")
            result = "aborted" if reason == "abort" else "done"
            self._conclude(job, reason)
            job.avoid = ()
        except PolicyChanged:
            result, job.avoid = "refused", ()
            raise
        except EngineUnavailable:
            job.avoid = (ticket.worker_id,)
            raise
        finally:
            job.generation.cached_tokens += cached
            served = Served(
                result,
                cached,
                prompt_tokens,
                len(job.generation.token_ids) - before,
                first_s,
                self._clock.monotonic() - begun_s,
            )
            await asyncio.shield(self._routes.complete(ticket, served))

    async def _take(self, job: _Job, ticket: Ticket, piece: Piece) -> None:
        job.generation.extend(piece.token_ids, piece.logprobs, ticket.policy_step, ticket.policy_digest)
        job.stopped_by = piece.stopped_by or job.stopped_by
        if job.live.call.logprobs is not None and piece.logprobs_json:
            job.entries.append(piece.logprobs_json)
        if job.feeder is not None:
            await job.feeder.add(piece.text_ids)

    def _conclude(self, job: _Job, reason: str) -> None:
        if reason == "abort":
            # Aborted for the client's sake, or for a new policy: then it goes on elsewhere.
            job.generation.finish_reason = TRUNCATED if job.live.gone.is_set() else ""
            return
        job.generation.finish_reason = reason
        job.generation.ended = reason == "stop" and not job.stopped_by

    async def _read(self, job: _Job, prompt: Prompt) -> None:
        generation, call = job.generation, job.live.call
        reason = "length" if generation.finish_reason == TRUNCATED else generation.finish_reason
        if job.feeder is not None:
            await job.feeder.finish(reason)
            job.message = job.feeder.message()
            return
        entries = "[" + ",".join(text[1:-1] for text in job.entries if text != "[]") + "]" if job.entries else ""
        whole = Piece(tuple(generation.token_ids), (), reason, job.stopped_by, 0, entries)
        reply = await self._steady(job, lambda url: self._engine.derender(url, call, prompt.token_ids, whole))
        job.message, job.logprobs_json = reply.message, reply.logprobs_json

    async def _steady(self, job: _Job, ask: Callable[[str], Awaitable[T]]) -> T:
        """Ask engines, one after the other, for something that any of them can answer."""
        async for attempt in self._retries(job):
            with attempt:
                urls = await self._routes.engine_urls(job.deadline_s - self._clock.monotonic())
                for url in urls[:-1]:
                    try:
                        return await ask(url)
                    except EngineUnavailable as error:
                        get_logger().info("engine.skipped", engine_url=url, error=error.message)
                return await ask(urls[-1])
        raise EngineUnavailable("no engine answered in time")

    def _retries(self, job: _Job) -> AsyncIterator[stamina.Attempt]:
        left_s = max(0.001, job.deadline_s - self._clock.monotonic())
        return stamina.retry_context(
            on=(PolicyChanged, EngineUnavailable),
            attempts=None,
            timeout=left_s,
            wait_initial=0.02,
            wait_max=1.0,
            wait_jitter=0.02,
        )

    async def _stop(self, job: _Job, work: "asyncio.Task[None]") -> None:
        live = job.live
        # A stream that has brought nothing may not have begun, and can't be aborted by name: its connection is closed.
        if live.ticket is not None and (job.heard or not live.call.stream):
            try:
                await asyncio.wait_for(self._engine.abort(live.ticket, live.request_id), _ABORT_GRACE_S)
                await asyncio.wait({work}, timeout=_ABORT_GRACE_S)
            except (EngineUnavailable, TimeoutError) as error:
                get_logger().info("abort.failed", call_id=live.mark.call_id, error=str(error))
        if not work.done():
            work.cancel()
            await asyncio.wait({work})

    def _outcome(self, job: _Job) -> Outcome | None:
        generation, sampling = job.generation, job.live.call.sampling
        if job.prompt is None or (not generation.token_ids and not generation.finish_reason):
            return None
        message = job.message or (job.feeder.message() if job.feeder else Message("assistant", ""))
        reason = generation.finish_reason or TRUNCATED
        if reason == "stop" and message.tool_calls:
            reason = "tool_calls"
        temperature = 1.0 if sampling.temperature is None else sampling.temperature
        top_p = 1.0 if sampling.top_p is None else sampling.top_p
        sample = generation.sample(temperature, top_p, reason)
        return Outcome(job.prompt, sample, message, generation.cached_tokens, job.logprobs_json)
