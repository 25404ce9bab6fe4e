"""RunService and EpisodeService.

They refuse to decide: they translate, ask the desk or the folds, and answer views.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import episode_service_pb2_grpc as episode_grpc
from forgerl.gateway.v1 import run_service_pb2 as run_api
from forgerl.gateway.v1 import run_service_pb2_grpc as run_grpc

from services.contract.trajectory import decode
from services.gateway import records
from services.gateway.adapters.credentials import Credentials
from services.gateway.application import Desk, IdTaken
from services.gateway.domain.tree import MessageTree
from services.gateway.entrypoints import wire
from services.gateway.folds import Folds
from services.gateway.ports import EpisodeSealed
from services.gateway.sessions import turns_stream
from services.gateway.views import RunLine, Views
from services.kernel.blobs import Blobs
from services.kernel.errors import ForgeError, InvalidInput, NotFound
from services.kernel.event_store import EventStore

_PAGE = 200
# Of an answer of many episodes, half of what a call may carry.
_ANSWER_BYTES = 8 * 1024 * 1024
_CHUNK = 32


@dataclass(frozen=True, slots=True)
class Doors:
    """What the servicers call."""

    desk: Desk
    folds: Folds
    views: Views
    store: EventStore
    blobs: Blobs
    credentials: Credentials
    base_url: str
    model: str


async def _taken(error: IdTaken, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.ALREADY_EXISTS, error.message)


async def _chunks(
    requests: AsyncIterator[episode_api.Submission],
) -> AsyncIterator[list[episode_api.Submission]]:
    """What has arrived by now, at most so many at a time."""
    arrived = asyncio.Queue[episode_api.Submission | None](2 * _CHUNK)

    async def receive() -> None:
        async for request in requests:
            await arrived.put(request)

    receiving = asyncio.create_task(receive())
    # A full queue wakes its reader anyway.
    receiving.add_done_callback(lambda _: None if arrived.full() else arrived.put_nowait(None))
    try:
        while not (receiving.done() and arrived.empty()):
            chunk = [await arrived.get()]
            while len(chunk) < _CHUNK and not arrived.empty():
                chunk.append(arrived.get_nowait())
            if taken := [request for request in chunk if request is not None]:
                yield taken
        await receiving
    finally:
        receiving.cancel()


def _fitting(views: Sequence[episode_api.EpisodeView]) -> list[episode_api.EpisodeView]:
    """As many as an answer holds, at least one: what is left out is asked for next."""
    size, found = 0, list[episode_api.EpisodeView]()
    for view in views:
        size += view.ByteSize()
        if found and size > _ANSWER_BYTES:
            break
        found.append(view)
    return found


class RunServicer(run_grpc.RunServiceServicer):
    """Runs."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def CreateRun(self, request, context):
        try:
            await self._doors.desk.create_run(request.run_id, request.spec)
        except IdTaken as error:
            await _taken(error, context)
        return await self._view(request.run_id)

    async def GetRun(self, request, context):
        return await self._view(request.run_id)

    async def ListRuns(self, request, context):
        await self._doors.views.catch_up()
        return run_api.ListRunsResponse(runs=[await self._view(run_id) for run_id in self._doors.views.run_ids])

    async def WatchRun(self, request, context) -> AsyncIterator[run_api.RunView]:
        async for _ in self._doors.views.changes(f"run/{request.run_id}"):
            view = await self._view(request.run_id)
            yield view
            if view.state != run_api.RUN_STATE_RUNNING and not request.follow:
                return

    async def StopRun(self, request, context):
        await self._doors.desk.stop_run(request.run_id)
        return await self._view(request.run_id)

    async def ResumeRun(self, request, context):
        await self._doors.desk.resume_run(request.run_id, request.end)
        return await self._view(request.run_id)

    async def RemoveRun(self, request, context):
        kinds = await self._doors.views.kinds(request.run_id)
        count, size = await self._doors.desk.remove_run(request.run_id, kinds, self._doors.blobs)
        return run_api.RemoveRunResponse(blobs=count, freed_bytes=size)

    async def _view(self, run_id: str) -> run_api.RunView:
        await self._doors.views.catch_up()
        return wire.run_view(await self._doors.folds.run(run_id), self._doors.views.runs.get(run_id, RunLine()))


class EpisodeServicer(episode_grpc.EpisodeServiceServicer):
    """Episodes."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def SubmitEpisode(self, request, context):
        try:
            created = await self._doors.desk.submit(request)
        except IdTaken as error:
            await _taken(error, context)
        return episode_api.SubmitEpisodeResponse(episode_id=request.episode_id, created=created)

    async def SubmitEpisodes(self, request_iterator, context):
        async for chunk in _chunks(request_iterator):
            try:
                created = await self._doors.desk.submit_many(chunk)
            except ForgeError:
                # One by one: what came before the bad one is taken and answered, and the error is that one's.
                for request in chunk:
                    yield await self.SubmitEpisode(request, context)
            else:
                for request, new in zip(chunk, created, strict=True):
                    yield episode_api.SubmitEpisodeResponse(episode_id=request.episode_id, created=new)

    async def GetEpisode(self, request, context):
        return await self._view(request.episode_id)

    async def GetEpisodes(self, request, context):
        if len(request.episode_ids) > _PAGE:
            raise InvalidInput("episode_ids", f"{len(request.episode_ids)} of them", f"{_PAGE} at most")
        asked = dict.fromkeys(request.episode_ids)
        views = await self._views(list(asked))
        missing = asked.keys() - {view.submission.episode_id for view in views}
        return episode_api.GetEpisodesResponse(
            episodes=_fitting(views), missing=[name for name in asked if name in missing]
        )

    async def ListEpisodes(self, request, context):
        await self._doors.folds.run(request.run_id)
        kinds = await self._doors.views.kinds(request.run_id)
        ids = [episode_id for episode_id, kind in kinds.items() if not request.kind or kind == request.kind]
        start = ids.index(request.after) + 1 if request.after in ids else 0
        page = ids[start : start + min(request.limit or _PAGE, _PAGE)]
        return episode_api.ListEpisodesResponse(episodes=_fitting(await self._views(page)))

    async def WatchEpisode(self, request, context) -> AsyncIterator[episode_api.EpisodeView]:
        last = None
        async for _ in self._doors.views.changes(f"episode/{request.episode_id}"):
            # Asked before the view, so that nothing can end the watch that the view does not show.
            over = (await self._doors.folds.episode(request.episode_id)).over
            view = await self._view(request.episode_id)
            if view != last:
                yield view
            last = view
            if over:
                return

    async def CancelEpisode(self, request, context):
        await self._doors.desk.cancel(request.episode_id, request.reason)
        return await self._view(request.episode_id)

    async def IssueCredential(self, request, context):
        episode = await self._doors.folds.episode(request.episode_id)
        if episode.sealed is not None:
            raise EpisodeSealed(f"episode {request.episode_id} is over: it gets no key any more")
        key = self._doors.credentials.issue(request.episode_id, episode.submitted.run_id)
        answer = episode_api.Credential(base_url=self._doors.base_url, api_key=key.api_key, model=self._doors.model)
        answer.expires_at.FromDatetime(key.expires_at)
        return answer

    async def GetTranscript(self, request, context):
        submitted = (await self._doors.folds.episode(request.episode_id)).submitted
        if submitted.HasField("recorded"):
            seal = await self._doors.desk.recorded_seal(request.episode_id)
            return wire.recorded_transcript(decode(await self._doors.blobs.get(seal.trajectory)))
        tree = MessageTree()
        await records.fold(tree, await self._doors.store.read(turns_stream(request.episode_id)), self._doors.blobs)
        return wire.transcript(tree)

    async def _view(self, episode_id: str) -> episode_api.EpisodeView:
        if views := await self._views([episode_id]):
            return views[0]
        raise NotFound(f"episode {episode_id!r} was never submitted here")

    async def _views(self, episode_ids: Sequence[str]) -> list[episode_api.EpisodeView]:
        """Of those that were ever submitted, in order; the store is asked once for all of them."""
        doors = self._doors
        await doors.views.catch_up()
        # Before the episodes: a seal that comes between says itself what its line said.
        lines = {one: doors.views.unsealed.get(one) for one in episode_ids}
        found = await doors.folds.submitted(episode_ids)
        run_ids = {episode.submitted.run_id for episode, _ in found.values()}
        runs = {run_id: await doors.folds.run(run_id) for run_id in run_ids}
        return [
            wire.episode_view(episode, runs[episode.submitted.run_id], lines[episode_id], traceparent)
            for episode_id, (episode, traceparent) in found.items()
        ]
