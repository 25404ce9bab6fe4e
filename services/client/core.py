"""Calls of a running stack as coroutines, with errors as ForgeError and retries over restarts of its services.

Refuses to keep state: whatever it answers was asked for just now.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import stamina
from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb
from forgerl.gateway.v1 import episode_service_pb2_grpc, run_service_pb2_grpc
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.router.v1 import router_service_pb2 as router_pb
from forgerl.router.v1 import router_service_pb2_grpc
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from forgerl.scheduler.v1 import scheduler_service_pb2_grpc
from forgerl.trainer.v1 import policy_service_pb2 as policy_pb
from forgerl.trainer.v1 import policy_service_pb2_grpc

from services.client.channels import Channels
from services.client.places import Places
from services.client.run_file import read_run_file
from services.kernel.errors import InvalidInput, Refused, Transient
from services.kernel.rpc import to_error

T = TypeVar("T")
_PAGE = 500


def _patience_s() -> float:
    given = os.environ.get("FORGERL_PATIENCE_S") or "30"
    try:
        patience_s = float(given)
    except ValueError:
        patience_s = math.nan
    if not 0 <= patience_s < math.inf:
        raise InvalidInput("FORGERL_PATIENCE_S", given, "seconds, 0 or more")
    return patience_s


class AsyncClient:
    """One client for all services of a stack.

    `patience_s`: how long a call is tried again while a service is away; FORGERL_PATIENCE_S, else 30.
    """

    def __init__(self, places: Places, *, patience_s: float | None = None, deadline_s: float = 30.0) -> None:
        # Its default remarks go to the terminal, which belongs to whoever uses this client.
        stamina.instrumentation.set_on_retry_hooks(())
        self._channels = Channels(places)
        self._patience_s = _patience_s() if patience_s is None else patience_s
        self._deadline_s, self._answered = deadline_s, False
        self.places = places
        self._runs = run_service_pb2_grpc.RunServiceStub(self._channels.to("gateway"))
        self._episodes = episode_service_pb2_grpc.EpisodeServiceStub(self._channels.to("gateway"))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channels.close()

    @staticmethod
    def read_run_file(path: str | Path) -> run_pb2.RunSpec:
        """The spec of a run file; see `services.client.run_file`."""
        return read_run_file(path)

    async def _call(self, method: Callable[..., Awaitable[T]], request: Any) -> T:
        """Raises ForgeError; a Transient one only after `patience_s`."""
        async for attempt in stamina.retry_context(on=Transient, attempts=None, timeout=self._patience_s, wait_max=2.0):
            with attempt:
                try:
                    answer = await method(request, timeout=self._deadline_s)
                    self._answered = True
                    return answer
                except grpc.RpcError as error:
                    raise self._error(error) from error
                except TimeoutError as error:
                    raise Transient(f"no answer within {self._deadline_s:g} s") from error
        raise AssertionError("unreachable")

    def _error(self, error: grpc.RpcError) -> Exception:
        """Patience is for services that come back; a stack that nobody has started doesn't."""
        failure = to_error(error)
        if isinstance(failure, Transient) and not self._answered and self.places.is_down():
            name = self.places.folder.name if self.places.folder else ""
            return Refused(f"instance {name} is not up: forgerl up starts it")
        return failure

    async def _watch(self, method: Callable[..., Any], request: Any) -> AsyncIterator[Any]:
        """Views until the server has no more; opened again, at most for `patience_s`, when the service restarts."""

        async def opened(_: None, timeout: float) -> tuple[Any, AsyncIterator[Any], Any]:
            call = method(request)
            views = aiter(call)
            return call, views, await asyncio.wait_for(anext(views, None), timeout)

        while True:
            call, views, view = await self._call(opened, None)
            try:
                while view is not None:
                    yield view
                    view = await anext(views, None)
                return
            except grpc.RpcError as error:
                failure = to_error(error)
                if not isinstance(failure, Transient):
                    raise failure from error
            finally:
                call.cancel()

    # ---- runs ----

    async def create_run(self, run_id: str, spec: run_pb2.RunSpec) -> runs_pb.RunView:
        """Starts a run; a repeat with the same spec is answered. Raises InvalidInput naming bad fields, or Refused."""
        return await self._call(self._runs.CreateRun, runs_pb.CreateRunRequest(run_id=run_id, spec=spec))

    async def run(self, run_id: str) -> runs_pb.RunView:
        """Raises NotFound."""
        return await self._call(self._runs.GetRun, runs_pb.GetRunRequest(run_id=run_id))

    async def runs(self) -> Sequence[runs_pb.RunView]:
        return (await self._call(self._runs.ListRuns, runs_pb.ListRunsRequest())).runs

    async def stop_run(self, run_id: str) -> runs_pb.RunView:
        """Ends a run now; may be called again."""
        return await self._call(self._runs.StopRun, runs_pb.StopRunRequest(run_id=run_id))

    async def resume_run(self, run_id: str, end: run_pb2.EndSpec) -> runs_pb.RunView:
        """Takes an ended run up again with a later end."""
        return await self._call(self._runs.ResumeRun, runs_pb.ResumeRunRequest(run_id=run_id, end=end))

    async def remove_run(self, run_id: str) -> runs_pb.RemoveRunResponse:
        """Forgets an ended run; answers what is freed."""
        return await self._call(self._runs.RemoveRun, runs_pb.RemoveRunRequest(run_id=run_id))

    async def watch_run(self, run_id: str, *, follow: bool = False) -> AsyncIterator[runs_pb.RunView]:
        """A view now and after each change, over restarts of the gateway; ends with the run unless `follow`."""
        request = runs_pb.WatchRunRequest(run_id=run_id, follow=follow)
        async for view in self._watch(self._runs.WatchRun, request):
            yield view

    # ---- episodes ----

    async def submit(self, submissions: Iterable[episodes_pb.Submission]) -> list[episodes_pb.SubmitEpisodeResponse]:
        """Submits in order; ids that are there already are answered, not repeated, so this may be called again."""
        wanted = list(submissions)

        async def send(_: None, timeout: float) -> list[episodes_pb.SubmitEpisodeResponse]:
            return [answer async for answer in self._episodes.SubmitEpisodes(iter(wanted), timeout=timeout)]

        return await self._call(send, None) if wanted else []

    async def episode(self, episode_id: str) -> episodes_pb.EpisodeView:
        return await self._call(self._episodes.GetEpisode, episodes_pb.GetEpisodeRequest(episode_id=episode_id))

    async def episodes(
        self, run_id: str, kind: task_pb2.EpisodeKind = task_pb2.EPISODE_KIND_UNSPECIFIED
    ) -> AsyncIterator[episodes_pb.EpisodeView]:
        """All episodes of a run, in the order of their ids, a page at a time."""
        after = ""
        while True:
            request = episodes_pb.ListEpisodesRequest(run_id=run_id, kind=kind, limit=_PAGE, after=after)
            page = (await self._call(self._episodes.ListEpisodes, request)).episodes
            for view in page:
                yield view
            if not page:
                return
            after = page[-1].submission.episode_id

    async def watch_episode(self, episode_id: str) -> AsyncIterator[episodes_pb.EpisodeView]:
        """A view now and after each change, until the episode is over."""
        request = episodes_pb.WatchEpisodeRequest(episode_id=episode_id)
        async for view in self._watch(self._episodes.WatchEpisode, request):
            yield view

    async def cancel(self, episode_id: str, reason: str = "cancelled by the client") -> episodes_pb.EpisodeView:
        request = episodes_pb.CancelEpisodeRequest(episode_id=episode_id, reason=reason)
        return await self._call(self._episodes.CancelEpisode, request)

    async def transcript(self, episode_id: str) -> episodes_pb.Transcript:
        """The message tree as text."""
        return await self._call(self._episodes.GetTranscript, episodes_pb.GetTranscriptRequest(episode_id=episode_id))

    # ---- scheduler, trainer, router ----

    async def capacity(self, run_id: str) -> scheduler_pb.Capacity:
        """How many tasks of each domain are wanted now."""
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channels.to("scheduler"))
        return await self._call(stub.GetCapacity, scheduler_pb.GetCapacityRequest(run_id=run_id))

    async def window(self, run_id: str) -> scheduler_pb.WindowState:
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channels.to("scheduler"))
        return await self._call(stub.GetWindow, scheduler_pb.GetWindowRequest(run_id=run_id))

    async def ledger(self, run_id: str) -> scheduler_pb.RunLedger:
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channels.to("scheduler"))
        return await self._call(stub.GetLedger, scheduler_pb.GetLedgerRequest(run_id=run_id))

    async def why(self, episode_id: str) -> scheduler_pb.EpisodeLedger:
        """Every recorded fact about what became of an episode."""
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channels.to("scheduler"))
        return await self._call(stub.ExplainEpisode, scheduler_pb.ExplainEpisodeRequest(episode_id=episode_id))

    async def prune_episodes(self, run_id: str, keep_steps: int) -> scheduler_pb.PruneEpisodesResponse:
        """Have all blobs freed that only episodes name which closed so many steps ago, or longer; may be repeated."""
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channels.to("scheduler"))
        request = scheduler_pb.PruneEpisodesRequest(run_id=run_id, keep_steps=keep_steps)
        return await self._call(stub.PruneEpisodes, request)

    async def policies(self, run_id: str, *, include_gone: bool = False) -> Sequence[policy_pb.PolicyView]:
        """Policies that can be loaded, or all that were published."""
        stub = policy_service_pb2_grpc.PolicyServiceStub(self._channels.to("trainer"))
        request = policy_pb.ListPoliciesRequest(run_id=run_id, include_gone=include_gone)
        return (await self._call(stub.ListPolicies, request)).policies

    async def metrics(self, run_id: str) -> Sequence[policy_pb.StepMetrics]:
        """Metrics of every step so far, in order."""
        stub = policy_service_pb2_grpc.PolicyServiceStub(self._channels.to("trainer"))
        return (await self._call(stub.GetMetrics, policy_pb.GetMetricsRequest(run_id=run_id))).steps

    async def score_tokens(self, run_id: str, policy_step: int, token_ids: Sequence[int]) -> list[float]:
        """log p of each token under a published policy at temperature 1; entry 0 is 0."""
        stub = policy_service_pb2_grpc.PolicyServiceStub(self._channels.to("trainer"))
        request = policy_pb.ScoreTokensRequest(
            run_id=run_id, policy_step=policy_step, token_ids=token_ids, temperature=1.0
        )
        return list((await self._call(stub.ScoreTokens, request)).logprobs)

    async def workers(self) -> Sequence[router_pb.WorkerView]:
        """The engines as the router sees them."""
        stub = router_service_pb2_grpc.RouterServiceStub(self._channels.to("router"))
        return (await self._call(stub.ListWorkers, router_pb.ListWorkersRequest())).workers
