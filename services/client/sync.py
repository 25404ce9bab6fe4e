"""The client for scripts and notebooks: the same calls, without `await`. Its loop runs in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from forgerl.trainer.v1 import policy_service_pb2 as policy_pb

from services.client.core import AsyncClient
from services.client.driver import Driver, Progress
from services.client.places import Places
from services.client.run_file import read_run_file
from services.client.traces import SpanNode, find_trace, read_trace

T = TypeVar("T")


class Client:
    """A stack on this machine by instance, or anywhere by `places`. Close it, or use it in a `with`."""

    def __init__(
        self, instance: str | None = None, *, places: Places | None = None, patience_s: float | None = None
    ) -> None:
        self.places = places or Places.of(instance)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forgerl-client", daemon=True)
        self._thread.start()
        self._core = self._wait(self._open(patience_s))

    async def _open(self, patience_s: float | None) -> AsyncClient:
        return AsyncClient(self.places, patience_s=patience_s)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        if self._loop.is_running():
            self._wait(self._core.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _each(self, views: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(views)
            except StopAsyncIteration:
                return False, None

        while True:
            there, view = self._wait(following())
            if not there:
                return
            yield view  # type: ignore[misc]

    @staticmethod
    def read_run_file(path: str | Path) -> run_pb2.RunSpec:
        """A TOML run file; unknown fields are refused by name."""
        return read_run_file(path)

    def create_run(self, run_id: str, spec: run_pb2.RunSpec) -> runs_pb.RunView:
        """Starts a run; a repeat with the same spec is answered."""
        return self._wait(self._core.create_run(run_id, spec))

    def drive(self, run_id: str, on_progress: Callable[[Progress], None] | None = None) -> Progress:
        """Feeds tasks until the run has ended and was evaluated; may be interrupted and called again."""

        async def driving() -> Progress:
            return await Driver(self._core, run_id, on_progress).drive()

        return self._wait(driving())

    def run(self, run_id: str) -> runs_pb.RunView:
        return self._wait(self._core.run(run_id))

    def runs(self) -> Sequence[runs_pb.RunView]:
        return self._wait(self._core.runs())

    def watch_run(self, run_id: str, *, follow: bool = False) -> Iterator[runs_pb.RunView]:
        """A view now and after each change."""
        return self._each(self._core.watch_run(run_id, follow=follow))

    def stop_run(self, run_id: str) -> runs_pb.RunView:
        return self._wait(self._core.stop_run(run_id))

    def resume_run(self, run_id: str, end: run_pb2.EndSpec) -> runs_pb.RunView:
        return self._wait(self._core.resume_run(run_id, end))

    def remove_run(self, run_id: str) -> runs_pb.RemoveRunResponse:
        return self._wait(self._core.remove_run(run_id))

    def submit(self, submissions: Iterable[episodes_pb.Submission]) -> list[episodes_pb.SubmitEpisodeResponse]:
        """In order; ids that are there already are answered, not repeated."""
        return self._wait(self._core.submit(submissions))

    def episode(self, episode_id: str) -> episodes_pb.EpisodeView:
        return self._wait(self._core.episode(episode_id))

    def episodes(
        self, run_id: str, kind: task_pb2.EpisodeKind = task_pb2.EPISODE_KIND_UNSPECIFIED
    ) -> Iterator[episodes_pb.EpisodeView]:
        return self._each(self._core.episodes(run_id, kind))

    def watch_episode(self, episode_id: str) -> Iterator[episodes_pb.EpisodeView]:
        return self._each(self._core.watch_episode(episode_id))

    def cancel(self, episode_id: str, reason: str = "cancelled by the client") -> episodes_pb.EpisodeView:
        return self._wait(self._core.cancel(episode_id, reason))

    def transcript(self, episode_id: str) -> episodes_pb.Transcript:
        """The message tree as text."""
        return self._wait(self._core.transcript(episode_id))

    def why(self, episode_id: str) -> scheduler_pb.EpisodeLedger:
        """What became of an episode, fact by fact."""
        return self._wait(self._core.why(episode_id))

    def trace(self, episode_id: str) -> list[SpanNode]:
        """The episode's spans as trees, also with nothing up. Raises Refused when the stack keeps its traces elsewhere.

        The gateway is asked only for an episode whose root span isn't in the files.
        """
        return find_trace(self.places, episode_id) or read_trace(self.places, self.episode(episode_id).traceparent)

    def window(self, run_id: str) -> scheduler_pb.WindowState:
        return self._wait(self._core.window(run_id))

    def ledger(self, run_id: str) -> scheduler_pb.RunLedger:
        return self._wait(self._core.ledger(run_id))

    def prune_episodes(self, run_id: str, keep_steps: int) -> scheduler_pb.PruneEpisodesResponse:
        """Have all blobs freed that only episodes name which closed so many steps ago, or longer; may be repeated."""
        return self._wait(self._core.prune_episodes(run_id, keep_steps))

    def metrics(self, run_id: str) -> Sequence[policy_pb.StepMetrics]:
        return self._wait(self._core.metrics(run_id))

    def policies(self, run_id: str, *, include_gone: bool = False) -> Sequence[policy_pb.PolicyView]:
        return self._wait(self._core.policies(run_id, include_gone=include_gone))
