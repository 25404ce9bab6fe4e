"""The demo from start to end. Nothing of it is left running, however it ends."""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from services.cli.demo.audit import audit
from services.cli.demo.memory import MemoryMeter
from services.cli.demo.plot import save_plot
from services.cli.demo.result import DemoResult, heldout_table, numbers_table
from services.cli.engine_model import check_engine_model
from services.cli.errors import CommandError, UsageError
from services.cli.run_command import load_spec
from services.cli.screen.live import follow_driver
from services.cli.supervisor.instance import CHECKOUT, Instance
from services.cli.supervisor.opening import OpenInstance, UpOptions, running_supervisor
from services.cli.supervisor.supervisor import Supervisor
from services.client import AsyncClient, Places, Progress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `forgerl demo` was asked for."""

    file: Path | None = None
    seed: int | None = None
    steps: int | None = None
    engines: int = 1
    out: Path = Path("demo-out")
    instance: str = "demo"


@dataclass(slots=True)
class _Times:
    """Moments on the monotonic clock; 0: not yet."""

    started: float = 0.0
    first_sample: float = 0.0
    first_policy: float = 0.0
    ended: float = 0.0


class Demo:
    """One demo in an instance of its own."""

    def __init__(self, options: DemoOptions, console: Console) -> None:
        self._options, self._console = options, console
        self._file = options.file or CHECKOUT / "examples" / "mixed.toml"
        self._spec = load_spec(self._file)
        if options.seed is not None:
            self._spec.seed = options.seed
        if options.steps is not None:
            self._spec.end.Clear()
            self._spec.end.steps = options.steps
        self._instance = Instance.named(options.instance)
        self._run_id = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self._times = _Times(started=time.monotonic())

    async def run(self) -> DemoResult:
        """Raises StackFailed, UsageError or ForgeError; everything is stopped then."""
        self._put_former_aside()
        opened = OpenInstance(self._instance)
        try:
            supervisor = opened.supervisor(UpOptions(engines=self._options.engines, model=Path(self._spec.model.path)))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, supervisor.stop)
            return await self._with_stack(supervisor)
        finally:
            opened.close()

    def _put_former_aside(self) -> None:
        """A demo starts from nothing; the one before stays beside it until the next."""
        if not self._instance.state_file.exists():
            return
        if running_supervisor(self._instance):
            raise UsageError(f"instance {self._instance.name} is up: forgerl down --instance {self._instance.name}")
        former = self._instance.dir.with_name(f"{self._instance.name}-before")
        shutil.rmtree(former, ignore_errors=True)
        self._instance.dir.rename(former)

    async def _with_stack(self, supervisor: Supervisor) -> DemoResult:
        meter = MemoryMeter(self._instance.dir)
        measuring = asyncio.ensure_future(meter.run())
        running = asyncio.ensure_future(supervisor.run())
        try:
            await self._unless_down(running, self._wait_until_healthy(supervisor))
            progress, ledger, steps = await self._unless_down(running, self._train)
            found = await audit(self._instance.dir, self._run_id)
        finally:
            measuring.cancel()
            supervisor.stop()
            self._console.print("stopping …")
            await running
        return DemoResult(
            progress=progress,
            ledger=ledger,
            steps=steps,
            audit=found,
            wall_s=time.monotonic() - self._times.started,
            first_sample_s=max(0.0, self._times.first_sample - self._times.started),
            training_s=max(0.0, self._times.ended - self._times.first_policy),
            peak_rss_mb=meter.peak_mb,
        )

    async def _unless_down(self, running: "asyncio.Future[None]", work: Callable[[], Awaitable[T]]) -> T:
        """The work's result; a stack that goes down first ends it with the stack's own error."""
        doing = asyncio.ensure_future(work())
        try:
            await asyncio.wait([running, doing], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        finally:
            doing.cancel()
        await running
        raise CommandError("the demo was interrupted")

    def _wait_until_healthy(self, supervisor: Supervisor) -> Callable[[], Awaitable[None]]:
        async def wait() -> None:
            healthy = asyncio.ensure_future(supervisor.all_healthy.wait())
            with self._console.status("starting the stack"):
                while not healthy.done():
                    await asyncio.wait([healthy], timeout=5.0)
                    missing = [child["name"] for child in supervisor.children() if child["state"] != "healthy"]
                    if missing:
                        self._console.print(f"starting: waiting for {', '.join(missing)}", style="dim")
            self._console.print(f"all up after {time.monotonic() - self._times.started:.0f} s")

        return wait

    async def _train(self):
        places = Places.of(self._instance.name)
        check_engine_model(places, Path(self._spec.model.path))
        async with AsyncClient(places, patience_s=300.0) as client:
            await client.create_run(self._run_id, self._spec)
            progress = await follow_driver(client, self._run_id, self._console, self._note_times)
            if progress.run.failure:
                raise CommandError(f"training was refused: {progress.run.failure}")
            return progress, await client.ledger(self._run_id), await client.metrics(self._run_id)

    def _note_times(self, progress: Progress) -> None:
        now, times = time.monotonic(), self._times
        if not times.first_policy and progress.run.HasField("policy_step"):
            times.first_policy = now
        if not times.first_sample and progress.run.evaluations_sealed + progress.run.episodes_sealed:
            times.first_sample = now
        if not times.ended and progress.run.HasField("ended_at"):
            times.ended = now

    def show(self, result: DemoResult) -> None:
        """Tables, files, and where everything is."""
        out = self._options.out
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_text(json.dumps(result.as_json(), indent=1) + "\n")
        save_plot(result, out / "demo.png")
        self._console.print()
        self._console.print(heldout_table(result))
        self._console.print()
        self._console.print(numbers_table(result))
        folder = self._instance.dir
        for what, where in (
            ("plot", out / "demo.png"),
            ("numbers", out / "result.json"),
            ("curves", folder / "runs" / self._run_id),
            ("policies, trajectories", folder / "blobs"),
            ("events", folder / "stores"),
            ("logs, traces", f"{folder / 'logs'}, {folder / 'traces'}"),
        ):
            self._console.print(f"{what:<24} {where}", soft_wrap=True, markup=False)
        for episode, why in [*result.audit.lost.items(), *result.audit.duplicated.items()][:10]:
            self._console.print(f"NOT WELL: {episode}: {why}", style="red")


def run_demo(options: DemoOptions, console: Console | None = None) -> DemoResult:
    """Runs it and shows what came out."""
    console = console or Console(highlight=False)
    demo = Demo(options, console)
    result = asyncio.run(demo.run())
    demo.show(result)
    return result
